----------------------- MODULE TraceStagedFollowUps -----------------------
(* Whether what was observed is a behaviour of AwaStagedFollowUps, and nothing of a       *)
(* fenced worker in it. Each step of a trace must be a step of the model; a state in      *)
(* which the next one is not has no successor, and TLC names it. TraceData is written by  *)
(* tests/traces.                                                                          *)
EXTENDS AwaStagedFollowUps, Sequences, TraceData

VARIABLES trace, at, gone    \* workers that are fenced

Observed == Traces[trace].steps
tracevars == <<state, lease, runs, rows, holder, done, trace, at, gone>>

TraceInit == /\ trace \in DOMAIN Traces /\ at = 1
             /\ state = [j \in 1..Traces[trace].jobs |-> "available"]
             /\ lease = [j \in 1..Traces[trace].jobs |-> 0]
             /\ holder = [k \in 1..Traces[trace].keys |-> Nobody]
             /\ runs = {} /\ rows = {} /\ done = {} /\ gone = {}

Attempts(e) == {r \in runs : r.job = e[2] /\ r.lease = e[3]}

By(w) == w \notin gone

Fits(e) ==
    CASE e[1] = "claim"    -> Claim(e[2]) /\ lease'[e[2]] = e[3] /\ By(e[4])
      [] e[1] = "stage"    -> \E r \in Attempts(e) : Stage(r, e[4])
      [] e[1] = "return"   -> \E r \in Attempts(e) : Return(r)
      [] e[1] = "commit"   -> \E r \in Attempts(e) : Commit(r, FALSE) /\ Fresh(r) = e[4] /\ By(e[5])
      [] e[1] = "end"      -> \E r \in Attempts(e) : End(r, e[4]) /\ By(e[5])
      [] e[1] = "park"     -> \E r \in Attempts(e) : Park(r) /\ By(e[4])
      [] e[1] = "resume"   -> \E r \in Attempts(e) : Resume(r) /\ By(e[4])
      [] e[1] = "take"     -> Take(e[2], e[3])
      [] e[1] = "reopen"   -> Reopen(e[2])
      [] e[1] = "external" -> CompleteExternally(e[2])
      [] e[1] = "release"  -> Release(e[2])
      [] e[1] = "occupy"   -> Occupy(e[2], "someone")
      [] e[1] = "fence"    -> UNCHANGED vars
      [] OTHER             -> FALSE

Fenced(e) == IF e[1] = "fence" THEN {e[2]} ELSE {}

TraceNext == \/ /\ at <= Len(Observed)
                /\ Fits(Observed[at])
                /\ gone' = gone \cup Fenced(Observed[at])
                /\ at' = at + 1 /\ UNCHANGED trace
             \/ /\ at > Len(Observed)
                /\ UNCHANGED tracevars

TraceSpec == TraceInit /\ [][TraceNext]_tracevars
===========================================================================

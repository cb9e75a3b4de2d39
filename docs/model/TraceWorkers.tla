--------------------------- MODULE TraceWorkers ---------------------------
(* Whether what was observed is a behaviour of AwaWorkers. Each transaction is the steps   *)
(* that the model has for it, one after another: the worker's row is locked from the first *)
(* to the last of them, so nothing comes in between. What a worker knows is not observed:  *)
(* it hears of its claims at once, and an attempt ends when it is first settled, or taken  *)
(* away. TraceData is written by tests/traces.                                             *)
EXTENDS AwaWorkers, Sequences, TraceData

VARIABLES trace, at

Observed == Traces[trace].steps
tracevars == <<state, lease, owner, fenced, held, answers, open, rows, done, late, trace, at>>

TraceInit == /\ trace \in DOMAIN Traces /\ at = 1
             /\ state = [j \in 1..Traces[trace].jobs |-> "available"]
             /\ lease = [j \in 1..Traces[trace].jobs |-> 0]
             /\ owner = [j \in 1..Traces[trace].jobs |-> Nobody]
             /\ fenced = {} /\ held = {} /\ answers = {} /\ open = {} /\ rows = {} /\ done = {}
             /\ late = FALSE

(* Attempts as they are observed: <<job, lease>>. *)
Pairs(as)    == {<<a.job, a.lease>> : a \in as}
Those(w, ps) == {a \in held : a.worker = w /\ <<a.job, a.lease>> \in ps}

(* A move by no worker. What runs is taken away only from the fenced, or with an excuse: it   *)
(* is overdue, whoever holds its callback's token may decide, or it is cancelled. What has  *)
(* completed stays.                                                                        *)
Others(j, to, excused) ==
    /\ state[j] # "completed"
    /\ state[j] = "running" => excused \/ owner[j] \in fenced
    /\ state' = [state EXCEPT ![j] = to] /\ owner' = [owner EXCEPT ![j] = Nobody]
    /\ UNCHANGED <<lease, fenced, held, answers, open, rows, done, late>>

(* An attempt begins to wait for a callback, or goes on; or ends while it waits. *)
Turns(w, j, l, from, to) ==
    /\ w \notin fenced /\ state[j] = from /\ lease[j] = l
    /\ state' = [state EXCEPT ![j] = to]
    /\ owner' = [owner EXCEPT ![j] = IF to = "running" THEN w ELSE Nobody]
    /\ UNCHANGED <<lease, fenced, held, answers, open, rows, done, late>>

Fits(e) ==
    CASE e[1] = "begin claim"   -> BeginClaim(e[2], e[3])
      [] e[1] = "commit claim"  -> \E t \in open : /\ t.worker = e[2] /\ CommitClaim(t)
                                                   /\ \A p \in e[3] : /\ lease'[p[1]] = p[2]
                                                                      /\ owner'[p[1]] = e[2]
      [] e[1] = "hear"          -> \E a \in answers : a.worker = e[2] /\ Pairs({a}) = {e[3]} /\ Hear(a)
      [] e[1] = "end"           -> \E a \in Those(e[2], {e[3]}) : End(a, e[4])
      [] e[1] = "begin settle"  -> /\ Pairs(Those(e[2], e[3])) = e[3]
                                   /\ BeginSettle(e[2], Those(e[2], e[3]))
      [] e[1] = "commit settle" -> \E t \in open : /\ t.worker = e[2] /\ Pairs(Applied(t)) = e[3]
                                                   /\ CommitSettle(t, e[5])
                                                   /\ Pairs(rows') = Pairs(rows) \cup e[4]
                                                   /\ Pairs(rows) \cap e[4] = {}
      [] e[1] = "others"        -> Others(e[2], e[3], e[4])
      [] e[1] = "park"          -> Turns(e[2], e[3][1], e[3][2], "running", "waiting")
      [] e[1] = "resume"        -> Turns(e[2], e[3][1], e[3][2], "waiting", "running")
      [] e[1] = "leave"         -> Turns(e[2], e[3][1], e[3][2], "waiting", e[4])
      [] e[1] = "fence"         -> Fence(e[2])
      [] OTHER                  -> FALSE

TraceNext == \/ /\ at <= Len(Observed)
                /\ Fits(Observed[at])
                /\ at' = at + 1 /\ UNCHANGED trace
             \/ /\ at > Len(Observed)
                /\ UNCHANGED tracevars

TraceSpec == TraceInit /\ [][TraceNext]_tracevars
===========================================================================

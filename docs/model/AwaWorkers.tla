---------------------------- MODULE AwaWorkers ----------------------------
(* Workers claim jobs and settle them in sets. One that misses its lease is   *)
(* fenced, and what it ran is rescued; what a worker does not know that it   *)
(* runs, because an answer was lost, it hands back itself.                    *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Jobs, Workers, MaxLease, Nobody,
    Poison,       \* jobs whose completion the database refuses
    Endings,      \* what an attempt leads to when it ends: "completed", or another state

    (* Guards: each of the negative configurations turns one of these off. *)
    FenceGuard,   \* claims and settlements ask whether their worker is fenced
    FenceLock,    \* ... and hold its row, so that it cannot be fenced until they commit
    LeaseGuard,   \* a plan applies only under the lease of its attempt
    PlanGuard,    \* each plan's inserts depend on its own guard; FALSE: on that of the set
    Alone,        \* what the database refuses as a set is tried plan by plan
    ClaimLock     \* rows are not compared with what is held while a claim is under way

VARIABLES
    state, lease, owner,   \* of each job
    fenced,                \* workers that are
    held,                  \* attempts in a worker's memory
    answers,               \* claims that are committed, of which the worker has not heard
    open,                  \* transactions of workers that are under way
    rows,                  \* follow-ups that were inserted: which attempt staged them
    done,                  \* completions that were committed
    late                   \* whether anything of a fenced worker was committed

vars == <<state, lease, owner, fenced, held, answers, open, rows, done, late>>

---------------------------------------------------------------------------
Attempt(w, j, l)  == [worker |-> w, job |-> j, lease |-> l, phase |-> "runs", to |-> "completed"]
Same(a, b)        == a.job = b.job /\ a.lease = b.lease
Accepted(w)       == FenceGuard => w \notin fenced
Busy(w)           == \E t \in open : t.worker = w
Tx(w, kind, what) == [worker |-> w, kind |-> kind, plans |-> what]

(* Attempts of a set, in another phase, or gone. *)
Put(as, phase) == held' = (held \ as) \cup {[a EXCEPT !.phase = phase] : a \in as}

Init == /\ state = [j \in Jobs |-> "available"]
        /\ lease = [j \in Jobs |-> 0] /\ owner = [j \in Jobs |-> Nobody]
        /\ fenced = {} /\ held = {} /\ answers = {} /\ open = {} /\ rows = {} /\ done = {}
        /\ late = FALSE

(* A transaction begins by asking after its worker. One that is refused is over, and so is  *)
(* all that the worker holds: it knows now.                                                 *)
Begin(w, kind, what) ==
    /\ ~Busy(w) /\ what # {} /\ Accepted(w)
    /\ open' = open \cup {Tx(w, kind, what)}
    /\ UNCHANGED <<state, lease, owner, fenced, held, answers, rows, done, late>>

BeginClaim(w, js)  == /\ \A j \in js : state[j] = "available" /\ lease[j] < MaxLease
                      /\ Begin(w, "claim", js)
BeginSettle(w, as) == /\ \A a \in as : a.worker = w /\ a.phase \in {"ended", "alone"}
                      /\ Cardinality(as) > 1 => \A a \in as : a.phase = "ended"
                      /\ Begin(w, "settle", as)

(* The rows that are marked as this worker's, of which it does not know. *)
Orphans(w) == {[worker |-> w, job |-> j, lease |-> lease[j], phase |-> "orphan", to |-> "available"] :
                  j \in {i \in DOMAIN state :
                           /\ state[i] = "running" /\ owner[i] = w
                           /\ \A a \in held : ~Same(a, [job |-> i, lease |-> lease[i]])}}
BeginHandBack(w)   == /\ ClaimLock => \A a \in answers : a.worker # w
                      /\ Begin(w, "hand back", Orphans(w))

Close(t)   == open' = open \ {t}
Written(t) == late' = (late \/ t.worker \in fenced)

CommitClaim(t) ==
    /\ t.kind = "claim"
    /\ LET js == {j \in t.plans : state[j] = "available"}
       IN /\ state' = [j \in DOMAIN state |-> IF j \in js THEN "running" ELSE state[j]]
          /\ lease' = [j \in DOMAIN state |-> IF j \in js THEN lease[j] + 1 ELSE lease[j]]
          /\ owner' = [j \in DOMAIN state |-> IF j \in js THEN t.worker ELSE owner[j]]
          /\ answers' = answers \cup {Attempt(t.worker, j, lease[j] + 1) : j \in js}
    /\ Close(t) /\ Written(t)
    /\ UNCHANGED <<fenced, held, rows, done>>

Applies(a) == state[a.job] = "running" /\ (LeaseGuard => lease[a.job] = a.lease)
Applied(t) == {a \in t.plans : Applies(a)}

Move(as, To(_)) ==
    LET js == {a.job : a \in as}
    IN /\ state' = [j \in DOMAIN state |-> IF j \in js THEN To(CHOOSE a \in as : a.job = j) ELSE state[j]]
       /\ owner' = [j \in DOMAIN state |-> IF j \in js THEN Nobody ELSE owner[j]]

Ending(a)    == a.to
Failing(a)   == "failed"
HandedBack(a) == "available"

Completed(as) == {[job |-> a.job, lease |-> a.lease] : a \in {b \in as : b.to = "completed"}}

(* One transaction for the whole set; each plan's inserts with its own move. The answer *)
(* may be lost: then the same plans are tried again.                                     *)
CommitSettle(t, lost) ==
    /\ t.kind = "settle" /\ \A a \in Applied(t) : a.job \notin Poison
    /\ Move(Applied(t), Ending)
    /\ done' = done \cup Completed(Applied(t))
    /\ rows' = rows \cup Completed(IF PlanGuard \/ Applied(t) = {} THEN Applied(t) ELSE t.plans)
    /\ held' = IF lost THEN held ELSE held \ t.plans
    /\ Close(t) /\ Written(t)
    /\ UNCHANGED <<lease, fenced, answers>>

(* The database refuses a set: all of it is rolled back, and its plans are tried alone. One *)
(* that is refused alone is recorded as failed, under its lease.                            *)
Refused(t) ==
    /\ t.kind = "settle" /\ \E a \in Applied(t) : a.job \in Poison
    /\ IF Cardinality(t.plans) > 1 /\ Alone
       THEN /\ Put(t.plans, "alone") /\ UNCHANGED <<state, owner, late>>
       ELSE /\ held' = held \ t.plans /\ Move(Applied(t), Failing) /\ Written(t)
    /\ Close(t)
    /\ UNCHANGED <<lease, fenced, answers, rows, done>>

CommitHandBack(t) ==
    /\ t.kind = "hand back"
    /\ Move(Applied(t), HandedBack)
    /\ Close(t) /\ Written(t)
    /\ UNCHANGED <<lease, fenced, held, answers, rows, done>>

(* The connection is lost before the commit. *)
RollBack(t) == Close(t) /\ UNCHANGED <<state, lease, owner, fenced, held, answers, rows, done, late>>

(* ---- in the worker's memory *)

Hear(a)  == /\ answers' = answers \ {a} /\ held' = held \cup {a}
            /\ UNCHANGED <<state, lease, owner, fenced, open, rows, done, late>>
Miss(a)  == /\ answers' = answers \ {a}
            /\ UNCHANGED <<state, lease, owner, fenced, held, open, rows, done, late>>
End(a, to) == /\ a.phase = "runs"
              /\ held' = (held \ {a}) \cup {[a EXCEPT !.phase = "ended", !.to = to]}
              /\ UNCHANGED <<state, lease, owner, fenced, answers, open, rows, done, late>>
(* It is refused, or finds that it has not been answered for too long; or it dies. *)
Cut(w)   == /\ w \in fenced /\ ~Busy(w)
            /\ held' = {a \in held : a.worker # w} /\ answers' = {a \in answers : a.worker # w}
            /\ UNCHANGED <<state, lease, owner, fenced, open, rows, done, late>>

(* ---- others *)

(* A worker whose transaction is under way is alive, and passed over. *)
Fence(w) == /\ w \notin fenced /\ (FenceLock => ~Busy(w))
            /\ fenced' = fenced \cup {w}
            /\ UNCHANGED <<state, lease, owner, held, answers, open, rows, done, late>>

Rescue(j) == /\ state[j] = "running" /\ owner[j] \in fenced
             /\ state' = [state EXCEPT ![j] = "available"] /\ owner' = [owner EXCEPT ![j] = Nobody]
             /\ UNCHANGED <<lease, fenced, held, answers, open, rows, done, late>>

(* An attempt long past its deadline: its worker has cut it, but its settlement is late. *)
Overdue(j) == /\ state[j] = "running"
              /\ \A a \in held \cup answers : a.job = j /\ a.lease = lease[j] => a.phase = "ended"
              /\ state' = [state EXCEPT ![j] = "available"] /\ owner' = [owner EXCEPT ![j] = Nobody]
              /\ UNCHANGED <<lease, fenced, held, answers, open, rows, done, late>>

Next == \/ \E w \in Workers :
              \/ \E js \in SUBSET Jobs : BeginClaim(w, js)
              \/ \E as \in SUBSET {a \in held : a.worker = w} : BeginSettle(w, as)
              \/ BeginHandBack(w) \/ Cut(w) \/ Fence(w)
        \/ \E t \in open : \/ CommitClaim(t) \/ Refused(t) \/ CommitHandBack(t) \/ RollBack(t)
                           \/ \E lost \in BOOLEAN : CommitSettle(t, lost)
        \/ \E a \in answers : Hear(a) \/ Miss(a)
        \/ \E a \in held, to \in Endings : End(a, to)
        \/ \E j \in Jobs : Rescue(j) \/ Overdue(j)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Workers)

---------------------------------------------------------------------------
(* Nothing of a fenced worker is accepted. *)
Silent == ~late

(* No two workers that are not fenced run the same job. *)
Exclusive == \A a, b \in held : a.job = b.job /\ a.phase = "runs" /\ b.phase = "runs"
                                /\ a.worker \notin fenced /\ b.worker \notin fenced => a = b

(* Follow-ups are there if, and only if, the completion of their attempt is. *)
Together == rows = done

(* Only the current lease completes a job, and nothing does so twice. *)
Current == /\ \A d \in done : d.lease = lease[d.job]
           /\ \A d, e \in done : d.job = e.job => d = e

(* What the database refuses costs no other job anything. *)
Neighbours == \A j \in DOMAIN state : state[j] = "failed" => j \in Poison

(* What runs is marked as some worker's, who can hand it back, or be fenced. *)
Recoverable == \A j \in DOMAIN state : (state[j] = "running") = (owner[j] # Nobody)
===========================================================================

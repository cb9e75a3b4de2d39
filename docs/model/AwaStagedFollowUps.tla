------------------------ MODULE AwaStagedFollowUps ------------------------
(* Follow-ups that a handler stages exist if, and only if, the completion of *)
(* the attempt that staged them commits under its lease.                     *)
(*                                                                           *)
(* Source: ADR-046, "Validation". README.md says where each step is in the   *)
(* code.                                                                     *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Jobs,        \* jobs that stage
    Keys,        \* unique keys of follow-ups
    MaxLease,    \* times that a job may be claimed
    MaxStaged,   \* follow-ups that an attempt may stage
    Nobody,

    (* Guards: each of the negative configurations turns one of these. *)
    Insertion,   \* "with" the completion; "before" it, or "after" it, in a transaction of its own
    GuardLease,  \* TRUE: a completion applies only under the lease of its attempt
    Borrow,      \* TRUE: a try borrows the follow-ups; FALSE: the first drains them
    Carried,     \* TRUE: whatever way a completion takes, its follow-ups go with it
    Dedup        \* TRUE: a key that a row holds is not taken again

VARIABLES
    state,       \* of each job
    lease,       \* of each job: how often it was claimed
    runs,        \* attempts that some process still has, also those that lost their lease
    rows,        \* follow-ups that were inserted
    holder,      \* of each key: the follow-up that holds it
    done         \* completions that were committed

vars == <<state, lease, runs, rows, holder, done>>

---------------------------------------------------------------------------
Attempt(j, l) == [job |-> j, lease |-> l, phase |-> "runs", staged |-> {}, sealed |-> {}]
Row(k, r)     == [key |-> k, job |-> r.job, lease |-> r.lease, holds |-> TRUE]

Become(r, how) == runs' = (runs \ {r}) \cup {how}
Gone(r)        == runs' = runs \ {r}

(* What awa.settle asks before it moves a job. *)
Guard(r, from) == /\ state[r.job] = from
                  /\ GuardLease => lease[r.job] = r.lease

Init == /\ state = [j \in Jobs |-> "available"]
        /\ lease = [j \in Jobs |-> 0]
        /\ runs = {} /\ rows = {} /\ done = {}
        /\ holder = [k \in Keys |-> Nobody]

(* ---- the attempt *)

Claim(j) ==
    /\ state[j] = "available" /\ lease[j] < MaxLease
    /\ state' = [state EXCEPT ![j] = "running"]
    /\ lease' = [lease EXCEPT ![j] = @ + 1]
    /\ runs' = runs \cup {Attempt(j, lease[j] + 1)}
    /\ UNCHANGED <<rows, holder, done>>

Stage(r, k) ==
    /\ r.phase = "runs" /\ k \notin r.staged /\ Cardinality(r.staged) < MaxStaged
    /\ Become(r, [r EXCEPT !.staged = @ \cup {k}])
    /\ UNCHANGED <<state, lease, rows, holder, done>>

(* The handler returns Completed; leaving the nursery seals the buffer. *)
Return(r) ==
    /\ r.phase = "runs"
    /\ Become(r, [r EXCEPT !.phase = "returned", !.sealed = r.staged])
    /\ UNCHANGED <<state, lease, rows, holder, done>>

(* Any other ending: retry, snooze, cancel, an error, a hand-back; the handler waits for a   *)
(* callback without being there. What was staged is gone with the attempt.                   *)
End(r, to) ==
    /\ r.phase = "runs" /\ Guard(r, "running")
    /\ state' = [state EXCEPT ![r.job] = to]
    /\ Gone(r)
    /\ UNCHANGED <<lease, rows, holder, done>>

(* The handler waits for a callback in memory, its buffer open; and goes on. *)
Park(r) ==
    /\ r.phase = "runs" /\ Guard(r, "running")
    /\ state' = [state EXCEPT ![r.job] = "waiting"]
    /\ UNCHANGED <<lease, runs, rows, holder, done>>

Resume(r) ==
    /\ r.phase = "runs" /\ Guard(r, "waiting")
    /\ state' = [state EXCEPT ![r.job] = "running"]
    /\ UNCHANGED <<lease, runs, rows, holder, done>>

(* ---- the completion *)

(* What the transaction inserts: of what the try holds, that which no row has the key of. *)
Fresh(r)     == {k \in (IF Carried THEN r.sealed ELSE {}) : Dedup => holder[k] = Nobody}
Inserts(r)   == /\ rows' = rows \cup {Row(k, r) : k \in Fresh(r)}
                /\ holder' = [k \in DOMAIN holder |-> IF k \in Fresh(r) THEN Row(k, r) ELSE holder[k]]

(* `held` is a fact for the invariants: the rows that hold its keys when it commits. *)
Committed(r) == [job |-> r.job, lease |-> r.lease, by |-> "handler", staged |-> r.staged,
                 held |-> {holder'[k] : k \in r.staged} \ {Nobody}]

Tried(r) == [r EXCEPT !.sealed = IF Borrow THEN @ ELSE {}]

Ready(r) == r.phase = (IF Insertion = "before" THEN "inserted" ELSE "returned")

(* It commits. The answer arrives, and the attempt is over; or it is lost, and the       *)
(* finalizer will try again.                                                              *)
Commit(r, lost) ==
    /\ Ready(r) /\ Guard(r, "running")
    /\ IF Insertion = "with" THEN Inserts(r) ELSE UNCHANGED <<rows, holder>>
    /\ state' = [state EXCEPT ![r.job] = "completed"]
    /\ done' = done \cup {Committed(r)}
    /\ CASE Insertion = "after" -> Become(r, [r EXCEPT !.phase = "owes"])
         [] lost                 -> Become(r, Tried(r))
         [] OTHER                -> Gone(r)
    /\ UNCHANGED lease

(* A deadlock, a connection lost before the commit: all of it is rolled back. *)
RollBack(r) ==
    /\ Ready(r) /\ Guard(r, "running")
    /\ Become(r, Tried(r))
    /\ UNCHANGED <<state, lease, rows, holder, done>>

(* The guard finds nothing: rescued, cancelled, taken over, completed by others, or by an *)
(* earlier try whose answer was lost.                                                     *)
Stale(r) ==
    /\ Ready(r) /\ ~Guard(r, "running")
    /\ Gone(r)
    /\ UNCHANGED <<state, lease, rows, holder, done>>

(* A process dies, or abandons a handler. *)
Die(r) == Gone(r) /\ UNCHANGED <<state, lease, rows, holder, done>>

(* Only in negative configurations: the inserts are a transaction of their own. *)
InsertApart(r) ==
    /\ \/ Insertion = "before" /\ r.phase = "returned" /\ Become(r, [r EXCEPT !.phase = "inserted"])
       \/ Insertion = "after" /\ r.phase = "owes" /\ Gone(r)
    /\ Inserts(r)
    /\ UNCHANGED <<state, lease, done>>

(* ---- others *)

(* Rescue, an operator, a callback that nobody is there for: the job is taken from whatever *)
(* attempt it is in.                                                                        *)
Take(j, to) ==
    /\ state[j] \in {"available", "running", "waiting"} /\ to # state[j]
    /\ state' = [state EXCEPT ![j] = to]
    /\ UNCHANGED <<lease, runs, rows, holder, done>>

(* An operator retries what failed. What has completed is never opened again. *)
Reopen(j) ==
    /\ state[j] = "failed"
    /\ state' = [state EXCEPT ![j] = "available"]
    /\ UNCHANGED <<lease, runs, rows, holder, done>>

(* A process without a handler completes a job that waits for a callback, or is about to. *)
CompleteExternally(j) ==
    /\ state[j] \in {"running", "waiting"}
    /\ state' = [state EXCEPT ![j] = "completed"]
    /\ done' = done \cup {[job |-> j, lease |-> lease[j], by |-> "others", staged |-> {}, held |-> {}]}
    /\ UNCHANGED <<lease, runs, rows, holder>>

(* The row that holds a key leaves the states in which it does, or is removed. *)
Release(k) ==
    /\ holder[k] # Nobody
    /\ holder' = [holder EXCEPT ![k] = Nobody]
    /\ rows' = {IF f = holder[k] THEN [f EXCEPT !.holds = FALSE] ELSE f : f \in rows}
    /\ UNCHANGED <<state, lease, runs, done>>

(* Someone who is no completion takes a key: a producer, or a row that had let go of it. *)
Occupy(k, who) ==
    /\ holder[k] = Nobody
    /\ holder' = [holder EXCEPT ![k] = who]
    /\ UNCHANGED <<state, lease, runs, rows, done>>

Next == \/ \E j \in DOMAIN state :
              \/ Claim(j) \/ Reopen(j) \/ CompleteExternally(j)
              \/ Take(j, "available") \/ Take(j, "failed")
        \/ \E r \in runs :
              \/ Return(r) \/ Park(r) \/ Resume(r) \/ RollBack(r) \/ Stale(r) \/ Die(r)
              \/ InsertApart(r)
              \/ \E k \in Keys : Stage(r, k)
              \/ \E to \in {"available", "waiting", "failed"} : End(r, to)
              \/ \E lost \in BOOLEAN : Commit(r, lost)
        \/ \E k \in Keys : Release(k)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
Completions == {d \in done : d.by = "handler"}

(* Every follow-up comes of a committed completion of the attempt that staged it. *)
Traceable == \A f \in rows : \E d \in Completions :
                d.job = f.job /\ d.lease = f.lease /\ f.key \in d.staged

(* At most one row holds a key. *)
OnePerKey == \A f, g \in rows : f.key = g.key /\ f.holds /\ g.holds => f = g

(* Every committed completion has its follow-ups, or rows that held their keys when it *)
(* committed.                                                                           *)
Covered == \A d \in Completions : \A k \in d.staged : \E f \in d.held : f.key = k

(* Only the current lease completes a job, and nothing does so twice. *)
Current == /\ \A d \in done : d.lease = lease[d.job]
           /\ \A d, e \in done : d.job = e.job => d = e

Symmetry == Permutations(Jobs) \cup Permutations(Keys)

TypeOK == /\ \A j \in DOMAIN state : state[j] \in {"available", "running", "waiting", "completed", "failed"}
          /\ \A f \in rows : f.key \in Keys
===========================================================================

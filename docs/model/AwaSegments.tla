---------------------------- MODULE AwaSegments ----------------------------
(* The lanes of the segmented engine: jobs are appended to the current segment *)
(* of a ring, claimed in the order of the transactions that appended them,     *)
(* end once, and go with their segment when it is truncated.                   *)
(*                                                                             *)
(* One lane; each job is appended by a transaction of its own, and claimed by  *)
(* itself. What a transaction writes is seen by others once it commits; what   *)
(* it reads, and what it does after that, are steps apart where the code has   *)
(* statements apart.                                                           *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Jobs,
    Places,       \* how many segments the ring has
    MaxNumber,    \* how often it may turn
    Nothing,

    (* Guards: each of the negative configurations turns one of these off. *)
    LookAgain,    \* a producer looks at the current number again after it has appended
    DrainLock,    \* a segment is drained only while no transaction appends to it
    NoteOpen,     \* a claim notes the transactions that it passes
    OneSnapshot,  \* ... as they are in the snapshot that reads the jobs
    EndLock,      \* who ends an attempt locks its claim, and looks then what has ended
    WhenOver,     \* a segment is truncated when all in it is over; FALSE: when it is drained
    ReadersFirst  \* ... and while nobody reads it

VARIABLES
    number,       \* of the current segment: a sequence, the same to every snapshot
    segments,     \* of each place: its number, and whether it is drained
    producer,     \* of each job: how far the transaction that appends it has come
    xid,          \* of each job: that transaction's number, 0 before it has one
    place,        \* of each job: the segment that it is appended to
    cursor,       \* of each place: up to where it is claimed, and the transactions noted
    claim,        \* the claim that is under way; it has the lane's turn
    claimed,      \* jobs that are claimed
    enders,       \* transactions that end attempts, or move jobs, and are under way
    ends,         \* of each job: what was said of its end
    rows,         \* jobs that are in awa.jobs
    readers,      \* places that someone reads for long
    gone,         \* jobs that a truncation removed
    torn          \* whether a truncation removed what someone was reading

vars == <<number, segments, producer, xid, place, cursor, claim, claimed, enders, ends, rows,
          readers, gone, torn>>
produced == <<producer, xid, place>>
ended    == <<enders, ends, rows>>
ring     == <<number, segments>>
read     == <<readers, gone, torn>>
taken    == <<cursor, claim, claimed>>

---------------------------------------------------------------------------
Ring == 0..(Places - 1)
PlaceOf(n) == n % Places

Phase(j) == producer[j].phase
Open(j)  == Phase(j) \in {"appended", "looked"}
Seen(j)  == Phase(j) = "committed" /\ j \notin gone
In(p)   == {j \in Jobs : Seen(j) /\ place[j] = p}
Waits(j) == Seen(j) /\ j \notin claimed /\ j \notin rows

Xids == {xid[j] : j \in Jobs} \ {0}
Next_xid == 1 + CHOOSE n \in Xids \cup {0} : \A m \in Xids : m <= n
OpenXids == {xid[j] : j \in {i \in Jobs : Phase(i) # "committed"}} \ {0}

Init == /\ number = 0
        /\ segments = [p \in Ring |-> [number |-> p, drained |-> FALSE]]
        /\ producer = [j \in Jobs |-> [phase |-> "new", number |-> 0]]
        /\ xid = [j \in Jobs |-> 0] /\ place = [j \in Jobs |-> Nothing]
        /\ cursor = [p \in Ring |-> [xid |-> 0, open |-> {}]]
        /\ claim = Nothing /\ claimed = {} /\ enders = {} /\ ends = [j \in Jobs |-> {}] /\ rows = {}
        /\ readers = {} /\ gone = {} /\ torn = FALSE

(* ---- producers *)

(* It reads the number of the current segment; what it appends, it appends later. *)
Look(j) == /\ Phase(j) = "new"
           /\ producer' = [producer EXCEPT ![j] = [phase |-> "knows", number |-> number]]
           /\ UNCHANGED <<xid, place, ring, taken, ended, read>>

Append(j) == /\ Phase(j) = "knows"
             /\ place' = [place EXCEPT ![j] = PlaceOf(producer[j].number)]
             /\ xid' = [xid EXCEPT ![j] = IF @ = 0 THEN Next_xid ELSE @]
             /\ producer' = [producer EXCEPT ![j].phase = "appended"]
             /\ UNCHANGED <<ring, taken, ended, read>>

(* If the ring has turned, it takes the job back and appends it anew, in the same *)
(* transaction.                                                                     *)
Check(j) == /\ Phase(j) = "appended"
            /\ producer' = [producer EXCEPT ![j] =
                  IF LookAgain /\ number # @.number THEN [phase |-> "knows", number |-> number]
                  ELSE [@ EXCEPT !.phase = "looked"]]
            /\ UNCHANGED <<xid, place, ring, taken, ended, read>>

Commit(j) == /\ Phase(j) = "looked"
             /\ producer' = [producer EXCEPT ![j].phase = "committed"]
             /\ UNCHANGED <<xid, place, ring, taken, ended, read>>

(* ---- claims *)

Ahead(p) == {j \in In(p) : Waits(j) /\ xid[j] > cursor[p].xid}
LateOnes(p) == {j \in In(p) : Waits(j) /\ xid[j] \in cursor[p].open}
First(js) == CHOOSE j \in js : \A i \in js : xid[j] <= xid[i]

(* Which job, and in the same snapshot which transactions it passes. *)
Passed(p, j) == IF xid[j] < cursor[p].xid THEN {} ELSE {x \in OpenXids : x > cursor[p].xid /\ x < xid[j]}

Take(p) ==
    /\ claim = Nothing /\ ~segments[p].drained /\ segments[p].number <= number
    /\ LateOnes(p) # {} \/ Ahead(p) # {}
    /\ LET j == IF LateOnes(p) # {} THEN First(LateOnes(p)) ELSE First(Ahead(p))
       IN claim' = [place |-> p, job |-> j, passed |-> Passed(p, j)]
    /\ UNCHANGED <<cursor, claimed, produced, ring, ended, read>>

CommitClaim ==
    /\ claim # Nothing
    /\ LET p == claim.place  j == claim.job
           passed == IF OneSnapshot THEN claim.passed ELSE Passed(p, j)
       IN /\ cursor' = [cursor EXCEPT ![p] =
                [xid |-> IF xid[j] > @.xid THEN xid[j] ELSE @.xid,
                 open |-> @.open \cup (IF NoteOpen THEN passed ELSE {})]]
          /\ claimed' = claimed \cup {j}
    /\ claim' = Nothing
    /\ UNCHANGED <<produced, ring, ended, read>>

(* ---- ends *)

(* A worker completes an attempt; a sweep moves that of a dead one into awa.jobs. *)
BeginEnd(j, how) ==
    /\ j \in claimed /\ ends[j] = {}
    /\ EndLock => \A e \in enders : e.job # j
    /\ [job |-> j, how |-> how] \notin enders
    /\ enders' = enders \cup {[job |-> j, how |-> how]}
    /\ UNCHANGED <<ends, rows, produced, ring, taken, read>>

CommitEnd(e) ==
    /\ ends' = [ends EXCEPT ![e.job] = @ \cup {e.how}]
    /\ rows' = IF e.how = "rescue" THEN rows \cup {e.job} ELSE rows
    /\ enders' = enders \ {e}
    /\ UNCHANGED <<produced, ring, taken, read>>

(* What nobody claims moves into awa.jobs when the ring is full. It takes the lane's turn. *)
Full == \A p \in Ring : segments[p].number # number + 1
Carry(j) ==
    /\ claim = Nothing /\ Waits(j) /\ Full
    /\ \A p \in Ring : segments[p].number >= segments[place[j]].number
    /\ rows' = rows \cup {j}
    /\ UNCHANGED <<enders, ends, produced, ring, taken, read>>

(* ---- the ring *)

Rotate ==
    /\ number < MaxNumber /\ ~Full
    /\ number' = number + 1
    /\ UNCHANGED <<segments, produced, taken, ended, read>>

Drain(p) ==
    /\ segments[p].number < number /\ ~segments[p].drained
    /\ DrainLock => \A j \in Jobs : Open(j) => place[j] # p
    /\ \A j \in In(p) : ~Waits(j)
    /\ segments' = [segments EXCEPT ![p].drained = TRUE]
    /\ UNCHANGED <<number, produced, taken, ended, read>>

Over(p) == \A j \in In(p) : j \in claimed /\ j \notin rows => ends[j] # {}

Touched(p) == \/ \E j \in Jobs : Open(j) /\ place[j] = p
              \/ claim # Nothing /\ claim.place = p
              \/ \E e \in enders : place[e.job] = p

Truncate(p) ==
    /\ segments[p].drained /\ (WhenOver => Over(p))
    /\ ~Touched(p) /\ (ReadersFirst => p \notin readers)
    /\ segments' = [segments EXCEPT ![p] = [number |-> @.number + Places, drained |-> FALSE]]
    /\ cursor' = [cursor EXCEPT ![p] = [xid |-> 0, open |-> {}]]
    /\ gone' = gone \cup In(p)
    /\ torn' = (torn \/ p \in readers)
    /\ UNCHANGED <<number, produced, claim, claimed, ended, readers>>

BeginRead(p) == /\ p \notin readers /\ readers' = readers \cup {p}
                /\ UNCHANGED <<gone, torn, produced, ring, taken, ended>>
EndRead(p)   == /\ p \in readers /\ readers' = readers \ {p}
                /\ UNCHANGED <<gone, torn, produced, ring, taken, ended>>

Next == \/ \E j \in Jobs : \/ Look(j) \/ Append(j) \/ Commit(j) \/ Carry(j)
                           \/ Check(j) \/ BeginEnd(j, "complete") \/ BeginEnd(j, "rescue")
        \/ \E e \in enders : CommitEnd(e)
        \/ CommitClaim \/ Rotate
        \/ \E p \in Ring : Take(p) \/ Drain(p) \/ Truncate(p) \/ BeginRead(p) \/ EndRead(p)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Jobs)

---------------------------------------------------------------------------
(* A job that is committed and waits is one that a claim will come to. *)
Findable == \A j \in Jobs : Waits(j) =>
               LET p == place[j] IN
               /\ ~segments[p].drained /\ segments[p].number <= number
               /\ xid[j] > cursor[p].xid \/ xid[j] \in cursor[p].open

(* A job that is gone was over. *)
Kept == \A j \in gone : j \in rows \/ ends[j] # {}

(* An attempt has one end: it completes in its lane, or moves. *)
OneEnd == \A j \in Jobs : Cardinality(ends[j]) <= 1

(* What someone reads stays while it reads. *)
Stable == ~torn
===========================================================================

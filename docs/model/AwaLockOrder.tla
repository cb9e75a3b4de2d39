--------------------------- MODULE AwaLockOrder ---------------------------
(* Transactions take their locks in one order: the worker's row, the turns of *)
(* lanes, claims, jobs by ID, and last the unique keys to take and to let go  *)
(* of, in one pass in byte order. So none waits in a circle.                   *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Transactions, Lanes, Claims, Jobs, Keys,  \* sets of numbers

    (* Rules: each of the negative configurations breaks one. *)
    ByNumber,   \* jobs are locked by ID; FALSE: as they come
    OnePass,    \* keys are taken and let go of in one pass; FALSE: taken, then let go of
    KeysLast    \* who moves jobs out of lanes does so before it lets go of keys

VARIABLES
    todo,       \* of each transaction: the locks that it will take, in order
    has         \* of each: those that it has

vars == <<todo, has>>

---------------------------------------------------------------------------
RECURSIVE Up(_), Down(_), Locks(_, _, _)
Least(S) == CHOOSE n \in S : \A m \in S : n <= m
Most(S)  == CHOOSE n \in S : \A m \in S : n >= m
Up(S)    == IF S = {} THEN <<>> ELSE <<Least(S)>> \o Up(S \ {Least(S)})
Down(S)  == IF S = {} THEN <<>> ELSE <<Most(S)>> \o Down(S \ {Most(S)})

(* Locks of a class on these numbers. One that skips does not wait: FOR UPDATE SKIP LOCKED. *)
Locks(class, ns, skips) ==
    IF ns = <<>> THEN <<>>
    ELSE <<[class |-> class, n |-> Head(ns), skips |-> skips]>> \o Locks(class, Tail(ns), skips)

OfLanes(S)  == Locks("lane", Up(S), FALSE)
OfClaims(S) == Locks("claim", Up(S), FALSE)
OfJobs(S, skips) == {Locks("job", Up(S), skips)} \cup
                    (IF ByNumber THEN {} ELSE {Locks("job", Down(S), skips)})
OfKeys(taken, freed) == IF OnePass THEN Locks("key", Up(taken \cup freed), FALSE)
                        ELSE Locks("key", Up(taken), FALSE) \o Locks("key", Up(freed), FALSE)

Worker == Locks("worker", <<1>>, FALSE)

(* What each function of the engine locks, in the order in which it does. *)
Settle == {Worker \o OfLanes(l) \o OfClaims(c) \o j \o OfKeys(taken, freed) :
              l \in SUBSET Lanes, c \in SUBSET Claims,
              j \in UNION {OfJobs(S, FALSE) : S \in SUBSET Jobs},
              taken \in SUBSET Keys, freed \in SUBSET Keys}
Claim  == {Worker \o OfLanes(l) \o j \o OfKeys(taken, {}) :
              l \in SUBSET Lanes, j \in UNION {OfJobs(S, TRUE) : S \in SUBSET Jobs},
              taken \in SUBSET Keys}
Waits  == {Worker \o j \o OfKeys(taken, {}) :
              j \in UNION {OfJobs(S, FALSE) : S \in SUBSET Jobs}, taken \in SUBSET Keys}
Answer == UNION {OfJobs({j}, FALSE) : j \in Jobs}
Enqueue == {OfKeys(taken, {}) : taken \in SUBSET Keys}
Fence  == {Locks("worker", <<1>>, TRUE)}
Carry  == {OfLanes(l) \o OfClaims(c) : l \in SUBSET Lanes, c \in SUBSET Claims}
Prune  == {IF KeysLast THEN m \o j \o OfKeys({}, freed) ELSE j \o OfKeys({}, freed) \o m :
              m \in Carry, j \in UNION {OfJobs(S, TRUE) : S \in SUBSET Jobs},
              freed \in SUBSET Keys}

Programs == Settle \cup Claim \cup Waits \cup Answer \cup Enqueue \cup Fence \cup Carry \cup Prune

---------------------------------------------------------------------------
Init == /\ todo \in [Transactions -> Programs]
        /\ has = [t \in Transactions |-> {}]

Same(a, b) == a.class = b.class /\ a.n = b.n

(* A worker's own transactions share its row; fencing it does not. *)
Conflict(a, b) == Same(a, b) /\ (a.class = "worker" => a.skips \/ b.skips)
Blockers(t) == IF todo[t] = <<>> THEN {}
               ELSE {u \in Transactions \ {t} : \E l \in has[u] : Conflict(l, Head(todo[t]))}

Lock(t) == /\ todo[t] # <<>> /\ Blockers(t) = {}
           /\ has' = [has EXCEPT ![t] = @ \cup {Head(todo[t])}]
           /\ todo' = [todo EXCEPT ![t] = Tail(@)]

Skip(t) == /\ Blockers(t) # {} /\ Head(todo[t]).skips
           /\ todo' = [todo EXCEPT ![t] = Tail(@)]
           /\ UNCHANGED has

Commit(t) == /\ todo[t] = <<>> /\ has[t] # {}
             /\ has' = [has EXCEPT ![t] = {}]
             /\ UNCHANGED todo

Next == \E t \in Transactions : Lock(t) \/ Skip(t) \/ Commit(t)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
Stuck(t, S) == /\ Blockers(t) \cap S # {} /\ ~Head(todo[t]).skips

(* No transactions wait for one another in a circle. *)
NoCircle == \A S \in SUBSET Transactions \ {{}} : \E t \in S : ~Stuck(t, S)
===========================================================================

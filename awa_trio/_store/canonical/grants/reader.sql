-- To look at jobs, their arguments and errors too, and at how they are kept.
GRANT SELECT ON awa.jobs, awa.unique_claims, awa.workers, awa.leaders TO :"role";

-- What every role needs: to find the schema, and to see that it is one it knows.
GRANT USAGE ON SCHEMA awa TO :"role";
GRANT SELECT ON awa.schema_version TO :"role";

// Package basebackup finds the newest physical backup of a PostgreSQL cluster in a folder and copies it into another
// folder, where adapters/embeddedpg runs it. It reads what pg_basebackup writes, in plain and in tar format, and a data
// directory that another tool restored. It never writes to the folder of the backups.
package basebackup

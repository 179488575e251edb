// Package embeddedpg runs a private PostgreSQL cluster out of a data directory:
// for `backbone dev`, which keeps its data, and for tests, which do not. It uses
// the PostgreSQL that the system's packages installed; it brings no binaries of
// its own and never deletes kept data.
//
// Layout of the data directory:
//
//	backbone.lock     held (flock) by the living owner, contains its process id
//	postgres.json     port and superuser password, mode 0600
//	pg/               owned by the system user that PostgreSQL runs as, mode 0700
//	pg/data           the cluster (PGDATA); its unix socket lies here too
//	pg/postgresql.log what PostgreSQL prints
//
// Started as root, PostgreSQL runs as the user postgres, or nobody where there is
// none. That user need not be able to reach the data directory by its path (it
// cannot, below /root): the server inherits the open directory and knows it as
// /proc/self/fd/3.
package embeddedpg

// Package embeddedpg runs a private PostgreSQL cluster in a data directory: for
// `backbone dev`, which keeps its data, and for tests, which do not. Start makes and starts a
// Cluster. The package uses the PostgreSQL that the system's packages installed; it contains no
// binaries and never deletes kept data.
//
// Layout of the data directory:
//
//	backbone.lock     locked (flock) by the running owner, contains its process id
//	postgres.json     port and superuser password, mode 0600
//	pg/               owned by the system user that PostgreSQL runs as, mode 0700
//	pg/data           the cluster (PGDATA) and its unix socket
//	pg/postgresql.log what PostgreSQL prints
//
// If backbone runs as root, PostgreSQL runs as the user postgres, or nobody where there is
// none. That user may have no access to the path of the data directory, as below /root, so the
// server inherits the open directory and uses it as /proc/self/fd/3.
package embeddedpg

package embeddedpg

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// defaultSettings fit a developer's machine. Everything that protects kept data
// stays at PostgreSQL's safe default. No value of a statement reaches the server's
// log.
var defaultSettings = map[string]string{
	"max_connections":           "200",
	"shared_buffers":            "256MB",
	"effective_cache_size":      "1GB",
	"work_mem":                  "16MB",
	"maintenance_work_mem":      "128MB",
	"max_locks_per_transaction": "256", // a table partition with its indexes is a lock each
	"min_wal_size":              "256MB",
	"max_wal_size":              "2GB",
	"checkpoint_timeout":        "15min",
	"wal_level":                 "replica",
	"fsync":                     "on",
	"full_page_writes":          "on",
	"synchronous_commit":        "on",
	"random_page_cost":          "1.1",
	"jit":                       "off",
	"timezone":                  "UTC",
	"password_encryption":       "scram-sha-256",

	"log_timezone":                      "UTC",
	"log_line_prefix":                   "%m [%p] %q%u@%d %e ",
	"log_error_verbosity":               "terse",
	"log_min_error_statement":           "panic",
	"log_min_duration_statement":        "-1",
	"log_parameter_max_length":          "0",
	"log_parameter_max_length_on_error": "0",
	"log_statement":                     "none",
	"log_checkpoints":                   "off",
	"log_autovacuum_min_duration":       "-1",
	"log_destination":                   "stderr",
	"logging_collector":                 "off",
}

// ephemeralSettings trade durability for speed. They apply only to clusters whose
// data the next start deletes.
var ephemeralSettings = map[string]string{
	"fsync":              "off",
	"full_page_writes":   "off",
	"synchronous_commit": "off",
	"wal_level":          "minimal",
	"max_wal_senders":    "0",
	"max_connections":    "400",
	"autovacuum_naptime": "5min",
}

// restoredSettings keep a restored cluster apart from the server of which it is a copy, beside the configuration of that
// server, which is replaced: the default of every other setting is safe. Such a cluster is thrown away, so it needs no
// fsync. A server that a user starts on it by hand listens on a socket in the data directory only.
var restoredSettings = map[string]string{
	"fsync":                           "off",
	"full_page_writes":                "off",
	"synchronous_commit":              "off",
	"hot_standby":                     "off", // or the limits of connections and locks of that server would be needed
	"listen_addresses":                "",
	"max_prepared_transactions":       "100", // those in its WAL
	"max_logical_replication_workers": "0",   // subscriptions in its databases would connect to other servers
	"max_wal_senders":                 "0",
	"unix_socket_directories":         ".",
}

// reservedSettings are set by this package only; other values would break the cluster's
// isolation.
var reservedSettings = []string{
	"cluster_name", "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file",
	"listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions",
}

// mergeSettings merges the settings of one cluster; the caller's override the defaults, and
// reserved ones are refused.
func mergeSettings(c Config) (map[string]string, error) {
	out := maps.Clone(defaultSettings)
	if runtime.GOOS == "linux" {
		// POSIX shared memory lies in /dev/shm, which containers cut to 64 MB or keep
		// for root; the server needs a System V segment in any case.
		out["dynamic_shared_memory_type"] = "sysv"
	}
	if c.Ephemeral {
		maps.Copy(out, ephemeralSettings)
	}
	if c.Restored {
		maps.Copy(out, restoredSettings)
		out["restore_command"] = c.RestoreCommand
	}
	for name, value := range c.Settings {
		name = strings.ToLower(name)
		if slices.Contains(reservedSettings, name) {
			return nil, fmt.Errorf("embeddedpg: setting %s is decided by the package; remove it from the settings", name)
		}
		if strings.ContainsAny(name+value, "\n\r\x00") {
			return nil, fmt.Errorf("embeddedpg: setting %s contains a line break; remove it", name)
		}
		out[name] = value
	}
	return out, nil
}

// configurationFile renders postgresql.conf.
func configurationFile(settings map[string]string) string {
	var b strings.Builder
	b.WriteString("# Written by backbone at every start; use ALTER SYSTEM for changes that should last.\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}

// accessFile is pg_hba.conf: every connection needs a password, and none is accepted from
// another machine.
const accessFile = `# Written by backbone at every start.
# type  database     user  address        method
local   all          all                  scram-sha-256
host    all          all   127.0.0.1/32   scram-sha-256
local   replication  all                  scram-sha-256
host    replication  all   127.0.0.1/32   scram-sha-256
`

package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
)

const superuser = "postgres"

// Config names the programs, the folder and the settings of a cluster.
type Config struct {
	// BinDir is the folder with initdb and postgres. Empty: [Start] searches as [FindBinaries] does, and prefers
	// the version that made the cluster.
	BinDir string
	// DataDir is created when missing. It may hold other files of its owner.
	DataDir string
	// Port on 127.0.0.1. 0: the one of the last start if it is free, else another.
	Port int
	// Settings of postgresql.conf that override the defaults of this package.
	Settings map[string]string
	// Logger logs the life of the cluster. Nil: nothing is logged.
	Logger *slog.Logger
	// Ephemeral clusters are recreated at every start and trade durability for
	// speed. A kept cluster is never started as ephemeral.
	Ephemeral bool
	// Restored clusters are copies of another server's cluster, which the caller put into pg/data. See restored.go.
	Restored bool
	// RestoreCommand is the restore_command with which a restored cluster fetches WAL at its first start. Empty: it
	// replays the WAL that lies in pg/data.
	RestoreCommand string
}

func (c Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// Cluster is a running PostgreSQL that this process owns.
type Cluster struct {
	directory *directory
	state     state
	log       *slog.Logger

	process *os.Process
	exited  chan struct{} // closed when the server process has ended and was reaped
	died    chan struct{} // closed when it has ended without Stop

	mutex    sync.Mutex
	stopping bool
	released bool
}

// Start makes the cluster on first use, starts it and waits until it accepts
// connections. It first ends the processes that a killed predecessor left running. The context
// bounds the start only, not the life of the cluster; it is the only bound of a recovery after
// a crash.
//
// Faults, all FailedPrecondition: dev.postgres_not_found,
// dev.data_directory_version (made by another major version),
// dev.data_directory_in_use, dev.data_directory_owner, dev.data_directory_damaged,
// dev.data_directory_foreign, dev.port_in_use, dev.postgres_start_failed, and of a
// restored cluster drill.recovery_failed. None of them changes or deletes anything in a
// cluster that is not restored.
func Start(ctx context.Context, config Config) (_ *Cluster, err error) {
	log := config.logger()
	settings, err := mergeSettings(config)
	if err != nil {
		return nil, err
	}
	directory, err := openDirectory(config.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, directory.release())
		}
	}()
	l := &launch{config: config, directory: directory, settings: settings, log: log}
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	process, err := l.start(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		directory: directory, state: l.state, log: log,
		process: process.cmd.Process, exited: process.exited, died: make(chan struct{}),
	}
	go c.watch(process.cmd)
	log.Info("PostgreSQL accepts connections", "port", c.state.Port, "pid", c.process.Pid, "major", l.installation.major)
	return c, nil
}

// watch closes died if the server ends without Stop.
func (c *Cluster) watch(cmd *exec.Cmd) {
	<-c.exited
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.stopping {
		c.log.Error("PostgreSQL ended by itself", "status", cmd.ProcessState.String(), "log", c.directory.logFile())
		close(c.died)
	}
}

// Port is the TCP port on 127.0.0.1.
func (c *Cluster) Port() int { return c.state.Port }

// LogFile is where PostgreSQL writes its log.
func (c *Cluster) LogFile() string { return c.directory.logFile() }

// DSN is a connection URL for a role and a database over loopback TCP. An empty
// password is left out.
func (c *Cluster) DSN(user, password, database string) string {
	return dsn(c.state.Port, user, password, database)
}

// SuperuserDSN is a connection URL with all rights over the cluster.
func (c *Cluster) SuperuserDSN(database string) string {
	return dsn(c.state.Port, superuser, c.state.SuperuserPassword, database)
}

func dsn(port int, user, password, database string) string {
	u := url.URL{
		Scheme: "postgres", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + database,
		User: url.User(user), RawQuery: "sslmode=disable",
	}
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// Done is closed when PostgreSQL ended without [Cluster.Stop]. It stays open
// after a requested stop.
func (c *Cluster) Done() <-chan struct{} { return c.died }

// Stop shuts PostgreSQL down cleanly, waits for its end and releases the data
// directory. If the context ends first, Stop ends PostgreSQL at once; the
// next start then recovers from the log. A second Stop does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mutex.Lock()
	c.stopping = true
	c.mutex.Unlock()

	signal := syscall.SIGINT
	for stopped := false; !stopped; {
		// An error means that it has ended already; exited is closed then.
		_ = c.process.Signal(signal)
		switch {
		case signal == syscall.SIGINT:
			select {
			case <-c.exited:
				stopped = true
			case <-ctx.Done():
				c.log.Warn("PostgreSQL did not stop in time; stopping it at once")
				signal = syscall.SIGQUIT
			}
		case waitUntil(context.Background(), immediateStopTime, c.hasExited) == nil:
			stopped = true
		default:
			signal = syscall.SIGKILL
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.released {
		return nil
	}
	c.released = true
	if signal == syscall.SIGKILL {
		c.log.Warn("PostgreSQL had to be killed")
	}
	if err := c.directory.release(); err != nil {
		return fmt.Errorf("embeddedpg: releasing the data directory: %w", err)
	}
	return nil
}

func (c *Cluster) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// isPortFree reports whether a server could listen on the port now.
func isPortFree(port int) bool {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// freePort asks the system for a port without a listener.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("embeddedpg: no free port on 127.0.0.1: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(errors.New("embeddedpg: a TCP listener without a TCP address"), listener.Close())
	}
	return address.Port, listener.Close()
}

// choosePort chooses the port of the next try: the configured one, else that of the last start,
// else a free one.
func choosePort(wanted, last, try int) (int, error) {
	switch {
	case wanted != 0 && isPortFree(wanted):
		return wanted, nil
	case wanted != 0:
		return 0, fault.New(fault.FailedPrecondition, "dev.port_in_use",
			"Port %d on 127.0.0.1 is taken by another program. Choose another port for PostgreSQL, or none to have one found.", wanted)
	case try == 0 && last != 0 && isPortFree(last):
		return last, nil
	}
	return freePort()
}

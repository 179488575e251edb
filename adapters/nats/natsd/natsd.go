// Package natsd runs an installed nats-server with JetStream as a child process, for
// `backbone dev --nats`. The server is not linked into backbone, whose binary would grow by a
// tenth for one flag. Tests that need brokers inside their own process use
// test/testkit/natstest.
//
// [Start] returns a [Server], whose Stop ends the process. If backbone was killed, the next
// Start ends the server that still runs.
package natsd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	program   = "nats-server"
	host      = "127.0.0.1"
	startTime = 30 * time.Second // until the server must take connections
	stopTime  = 10 * time.Second // until a server that was asked to end is killed
	pollEvery = 20 * time.Millisecond
)

// Config says where a server keeps its data and how clients reach it, on 127.0.0.1 only.
type Config struct {
	Directory string // of streams, configuration and log; made if it is missing, and used by one backbone at a time
	Port      int    // of clients, taken if it is free, else another; 0: any
	User      string
	Password  string
	Logger    *slog.Logger
}

// Server is a running nats-server.
type Server struct {
	config Config
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts the nats-server found in PATH and waits until it takes connections.
// Faults, both FailedPrecondition: dev.nats_not_found, dev.nats_start_failed.
func Start(c Config) (*Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fault.New(fault.FailedPrecondition, "dev.nats_not_found",
			"--nats needs the program nats-server, and PATH has none; install it (https://nats.io/download, on Debian: apt-get install nats-server) or start without --nats").WithCause(err)
	}
	if err := os.MkdirAll(c.Directory, 0o700); err != nil {
		return nil, failed("%s cannot be made", c.Directory).WithCause(err)
	}
	s := &Server{config: c, exited: make(chan struct{})}
	if err := s.endPredecessor(); err != nil {
		return nil, err
	}
	if s.config.Port, err = freePort(c.Port); err != nil {
		return nil, failed("127.0.0.1 has no free port").WithCause(err)
	}
	if err := os.WriteFile(s.file("conf"), s.settings(), 0o600); err != nil {
		return nil, failed("%s cannot be written", s.file("conf")).WithCause(err)
	}
	s.cmd = exec.Command(path, "--config", s.file("conf"))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches backbone alone, which ends the server in order
	var output bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &output, &output // what the server writes before it opens its log
	if err := s.cmd.Start(); err != nil {
		return nil, failed("%s could not be run", path).WithCause(err)
	}
	go func() {
		_ = s.cmd.Wait() // the status is read from ProcessState
		close(s.exited)
	}()
	if !s.awaitConnections() {
		s.Stop()
		reason := strings.TrimSpace(output.String())
		if reason == "" {
			reason = "its log is " + s.file("log")
		}
		return nil, failed("%s", reason)
	}
	c.Logger.Info("NATS takes connections", "port", s.config.Port, "pid", s.cmd.Process.Pid, "program", path)
	return s, nil
}

func failed(format string, args ...any) *fault.Error {
	return fault.New(fault.FailedPrecondition, "dev.nats_start_failed",
		"the NATS server did not start: %s; see whether its port is free and its folder can be written", fmt.Sprintf(format, args...))
}

// Port is where clients connect.
func (s *Server) Port() int { return s.config.Port }

// URL is how clients connect, with user and password.
func (s *Server) URL() string {
	u := url.URL{Scheme: "nats", Host: s.address(), User: url.UserPassword(s.config.User, s.config.Password)}
	return u.String()
}

// Stop ends the server in order, and kills one that does not end.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-s.exited:
	case <-time.After(stopTime):
		s.config.Logger.Warn("the NATS server had to be killed")
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

func (s *Server) address() string { return net.JoinHostPort(host, strconv.Itoa(s.config.Port)) }

func (s *Server) file(kind string) string {
	return filepath.Join(s.config.Directory, program+"."+kind)
}

// settings are the server's configuration file, which keeps the password off the
// command line. A cursor of the fan-out moves once the broker has acknowledged, so what
// is acknowledged must be on the disk.
func (s *Server) settings() []byte {
	return fmt.Appendf(nil, `server_name: backbone
host: %s
port: %d
pid_file: %q
log_file: %q
logfile_size_limit: 16MB
authorization { user: %q, password: %q }
jetstream { store_dir: %q, sync_interval: always }
`, host, s.config.Port, s.file("pid"), s.file("log"), s.config.User, s.config.Password, s.config.Directory)
}

func (s *Server) awaitConnections() bool {
	return s.await(startTime, func() bool {
		c, err := net.DialTimeout("tcp", s.address(), time.Second)
		return err == nil && c.Close() == nil
	})
}

// await checks a condition until it holds, the server ends, or the time is over.
func (s *Server) await(limit time.Duration, holds func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if holds() {
			return true
		}
		select {
		case <-s.exited:
			return false
		case <-tick.C:
		}
	}
	return false
}

// endPredecessor ends the server of a backbone that was killed: two servers must not
// work in one folder. The process is known by its pid file and its command line, so that
// another program that has the number by now is not ended.
func (s *Server) endPredecessor() error {
	text, err := os.ReadFile(s.file("pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil || pid <= 1 || !s.isServer(pid) {
		return nil //nolint:nilerr // the file names no server of this folder
	}
	s.config.Logger.Warn("stopping the NATS server of an earlier run that was killed", "pid", pid)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(pid, signal) // fails only when it has ended
		if s.await(stopTime, func() bool { return !s.isServer(pid) }) {
			return nil
		}
	}
	return failed("process %d of an earlier run works in %s and does not end", pid, s.config.Directory)
}

// isServer reports whether a living process runs with this folder's configuration.
func (s *Server) isServer(pid int) bool {
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil { // it has ended, or this system has no /proc
		title, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && strings.Contains(string(title), s.file("conf"))
}

// freePort returns the wanted port if it is free, else one that the system chooses.
func freePort(wanted int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(wanted)))
	if err != nil {
		if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			return 0, err
		}
	}
	address, _ := l.Addr().(*net.TCPAddr)
	return address.Port, l.Close()
}

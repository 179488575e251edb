// Package embedded runs NATS servers with JetStream inside the process of a test, alone
// or as a cluster. Product code never imports it: `backbone dev --nats` starts an
// installed nats-server (adapters/nats/natsd).
package embedded

import (
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Config says where a server keeps its data and how it is reached: on 127.0.0.1 only.
type Config struct {
	Directory string // of the streams
	Port      int    // of clients; 0: a free one
	User      string // "" lets everybody in
	Password  string
	Logger    *slog.Logger  // warnings and errors of the server; nil: silent
	Start     time.Duration // how long the start may take; 0: 30 s

	Cluster *Cluster // nil: a server of its own
}

// Cluster makes a server one of several.
type Cluster struct {
	Name   string
	Server string // unique in the cluster
	Port   int    // of the other servers
	Peers  []int  // their ports, its own too
}

// Server is a running NATS server.
type Server struct {
	server *server.Server
	config Config
}

const loopback = "127.0.0.1"

// Start starts a server and waits until it takes connections. Fault
// dev.nats_start_failed.
func Start(c Config) (*Server, error) {
	if c.Start <= 0 {
		c.Start = 30 * time.Second
	}
	o := &server.Options{
		ServerName: "backbone", Host: loopback, Port: c.Port, NoSigs: true, NoLog: c.Logger == nil, DontListen: false,
		JetStream: true, StoreDir: c.Directory, Username: c.User, Password: c.Password,
		// A cursor moves once the broker has acknowledged, so what is acknowledged must be
		// on the disk. Servers of a cluster have it from each other.
		SyncAlways: c.Cluster == nil, SyncInterval: 10 * time.Second,
	}
	if c.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if c.Cluster != nil {
		o.ServerName = c.Cluster.Server
		o.Cluster = server.ClusterOpts{Name: c.Cluster.Name, Host: loopback, Port: c.Cluster.Port}
		for _, port := range c.Cluster.Peers {
			if port != c.Cluster.Port {
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: net.JoinHostPort(loopback, strconv.Itoa(port))})
			}
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, failed(err)
	}
	if c.Logger != nil {
		s.SetLogger(logger{c.Logger}, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(c.Start) {
		s.Shutdown()
		return nil, failed(nil)
	}
	return &Server{server: s, config: c}, nil
}

func failed(cause error) error {
	f := fault.New(fault.FailedPrecondition, "dev.nats_start_failed", "the embedded NATS server did not start; see whether its port is free and its folder can be written")
	if cause != nil {
		f = f.WithCause(cause)
	}
	return f
}

// Port is where clients connect.
func (s *Server) Port() int {
	if a, ok := s.server.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return s.config.Port
}

// URL is how clients connect, with user and password if there are.
func (s *Server) URL() string {
	u := url.URL{Scheme: "nats", Host: net.JoinHostPort(loopback, strconv.Itoa(s.Port()))}
	if s.config.User != "" {
		u.User = url.UserPassword(s.config.User, s.config.Password)
	}
	return u.String()
}

// Stop ends the server in order and waits for it.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// logger hands warnings and errors on.
type logger struct{ to *slog.Logger }

func (logger) Noticef(string, ...any) {}
func (logger) Debugf(string, ...any)  {}
func (logger) Tracef(string, ...any)  {}

func (l logger) Warnf(format string, args ...any)  { l.to.Warn(line(format, args)) }
func (l logger) Errorf(format string, args ...any) { l.to.Error(line(format, args)) }
func (l logger) Fatalf(format string, args ...any) { l.to.Error(line(format, args)) }

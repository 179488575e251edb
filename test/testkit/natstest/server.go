// Package natstest runs NATS servers with JetStream inside the process of a test, alone or
// as a cluster. Start starts one. Tests of the broker's adapter, of the fan-out and
// end-to-end tests call it; product code never does: `backbone dev --nats` starts an
// installed nats-server (adapters/nats/natsd).
package natstest

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config is where a server stores its data and how clients reach it: on 127.0.0.1 only.
type Config struct {
	Directory string // of the streams
	Port      int    // of clients; 0: a free one
	User      string // "": clients need no password
	Password  string

	Cluster *Cluster // nil: a single server
}

// Cluster makes a server one of several.
type Cluster struct {
	Name   string
	Server string // unique in the cluster
	Port   int    // for the other servers
	Peers  []int  // ports of all servers of the cluster
}

// Server is a running NATS server.
type Server struct {
	server *server.Server
	config Config
}

const (
	loopback     = "127.0.0.1"
	startTimeout = 30 * time.Second
)

// Start starts a server and waits until it accepts connections.
func Start(c Config) (*Server, error) {
	o := &server.Options{
		ServerName: "backbone", Host: loopback, Port: c.Port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: c.Directory, Username: c.User, Password: c.Password,
		// A cursor moves once the broker has acknowledged, so acknowledged messages must be
		// on the disk. A server of a cluster gets them from the other servers.
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
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, errors.New("natstest: the server accepts no connections; see whether its port is free")
	}
	return &Server{server: s, config: c}, nil
}

// URL is how clients connect, with user and password if the server has them.
func (s *Server) URL() string {
	u := url.URL{Scheme: "nats", Host: s.server.Addr().String()}
	if s.config.User != "" {
		u.User = url.UserPassword(s.config.User, s.config.Password)
	}
	return u.String()
}

// Stop shuts the server down and waits until it has ended.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

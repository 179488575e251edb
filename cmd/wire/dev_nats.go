package wire

import (
	"crypto/rand"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/nats/embedded"
	"github.com/erpbackbone/backbone/configs"
)

// devNATS is the folder of the streams.
const devNATS = "nats"

// startDevNATS starts a NATS server with JetStream in the data folder and leads the
// fan-out to it. Its address stays the same as long as its port is free.
func startDevNATS(dir string, state *devState, config *configs.Config, logger *slog.Logger) (*embedded.Server, error) {
	if state.NATSPassword == "" {
		state.NATSPassword = rand.Text()
	}
	server, err := embedded.Start(embedded.Config{
		Directory: filepath.Join(dir, devNATS), Port: ifFree(state.NATSPort), User: "backbone", Password: state.NATSPassword, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	state.NATSPort = server.Port()
	config.NATS.URLs = configs.DSN(server.URL())
	return server, nil
}

// ifFree gives the port, or 0 if it is taken.
func ifFree(port int) int {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0
	}
	_ = l.Close() // nothing came in
	return port
}

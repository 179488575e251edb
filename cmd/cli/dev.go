package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/nats/natsd"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/fault"
)

const defaultDataDir = "dev-data"

func devCommand(modules []plugin.Module) *cobra.Command {
	o := devOptions{Modules: modules}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, without set-up",
		Long: "dev starts a PostgreSQL of its own in the data folder, sets up a demo tenant with two\n" +
			"legal entities (USMF in USD, DEMF in EUR) and a person for every role, and serves\n" +
			"the API on loopback. It keeps its data between runs; DIR/dev.json holds how to\n" +
			"reach it. It is not configured: backbone.yaml and BACKBONE_* are for serve.",
		Example: "  backbone dev\n" +
			"  backbone dev --sample\n" +
			"  backbone dev --nats\n" +
			"  backbone dev --data-dir /tmp/books --http 127.0.0.1:9000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Terminal = cmd.OutOrStdout(), isTerminal(os.Stdout)
			return runDev(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DataDir, "data-dir", defaultDataDir, "folder for PostgreSQL's data, log and dev.json")
	f.StringVar(&o.HTTP, "http", "127.0.0.1:8080", "loopback address of the API; port 0 takes a free one")
	f.StringVar(&o.Postgres, "postgres", "", "folder of PostgreSQL's programs (default: found on PATH and in /usr/lib/postgresql)")
	f.BoolVar(&o.NATS, "nats", false, "run the installed nats-server with JetStream too, and publish all events to it")
	f.BoolVar(&o.Sample, "sample", false, "take the sample invoices through submit, approve, post and trace first")
	return cmd
}

// devOptions are the flags of `backbone dev` and its output.
type devOptions struct {
	Modules  []plugin.Module
	DataDir  string
	HTTP     string // host:port on loopback
	Postgres string // folder of the PostgreSQL programs; "": searched for
	Sample   bool
	NATS     bool      // run an installed nats-server and publish to it
	Out      io.Writer // messages for the user
	Terminal bool      // Out is a terminal: progress may redraw its line
}

// devFile is DIR/dev.json: the addresses and tokens of a running `backbone dev`.
type devFile struct {
	HTTP          string            `json:"http"`
	DSN           string            `json:"dsn"`
	EraserDSN     string            `json:"eraser_dsn"`
	KMS           devKMS            `json:"kms"`
	Exports       string            `json:"exports"` // folder of receipts, certificates and exports of keys
	Archive       string            `json:"archive"` // folder of archived payloads
	Tenant        string            `json:"tenant"`
	LegalEntities []string          `json:"legal_entities"`
	Tokens        map[string]string `json:"tokens"`
	NATS          string            `json:"nats,omitempty"` // address of the NATS server of --nats
}

// devKMS holds the address and credentials of the key server of a running `backbone dev`.
type devKMS struct {
	Endpoint    string `json:"endpoint"`
	Credentials string `json:"credentials_file"`
}

// devState is DIR/dev-state.json: the state that the next run needs.
type devState struct {
	AppPassword    string            `json:"app_password"`
	EraserPassword string            `json:"eraser_password"`
	Tokens         map[string]string `json:"tokens"`
	BooksReady     bool              `json:"books_ready"`
	SampleDone     bool              `json:"sample_done"`
	NATSPort       int               `json:"nats_port,omitempty"`
	NATSPassword   string            `json:"nats_password,omitempty"`
}

const (
	devFileName  = "dev.json"
	devStateName = "dev-state.json"
	devDatabase  = "backbone"
	devKeys      = "kms"           // folder
	devExports   = "exports"       // folder
	devArchive   = "archive"       // folder
	devKeysAudit = "kms-audit.log" // outside the folder of the keys
	stopTimeout  = 30 * time.Second
)

// readDevFile reads what a running `backbone dev` wrote; an empty devFile on an error.
func readDevFile(dataDir string) (devFile, error) {
	var f devFile
	if err := readJSON(filepath.Join(dataDir, devFileName), &f); err != nil {
		return devFile{}, err
	}
	return f, nil
}

// runDev runs PostgreSQL, the embedded key server, the demo tenant and the API in one process
// until ctx ends or PostgreSQL dies. If the process is killed, PostgreSQL keeps running; the
// next start on the folder stops it first.
func runDev(ctx context.Context, o devOptions) (err error) {
	dir := filepath.Clean(o.DataDir) // not made absolute, so that printed paths stay short
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	listener, err := listenLoopback(o.HTTP)
	if err != nil {
		return err
	}
	defer listener.Close()
	logFile, logger, err := devLogger(dir)
	if err != nil {
		return err
	}
	defer logFile.Close()

	printLine := func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }
	printLine("Starting PostgreSQL in %s", dir)
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{BinDir: o.Postgres, DataDir: absolute, Logger: logger})
	if err != nil {
		return ignoreCancellation(ctx, err)
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(ignoreCancellation(ctx, err), cluster.Stop(stopping))
		if err == nil {
			printLine("Stopped. Everything is kept in %s", dir)
		}
	}()
	audit, err := openLog(filepath.Join(dir, devKeysAudit))
	if err != nil {
		return err
	}
	defer audit.Close()
	state, config, err := prepareDevDatabase(ctx, cluster, dir, o.Modules, printLine)
	if err != nil {
		return err
	}
	config.HTTP.Listen = listener.Addr().String()
	config.KMS.LocalDirectory, config.KMS.AllowLocal = filepath.Join(absolute, devKeys), true
	config.Erasure.ExportDirectory, config.Archive.Directory = filepath.Join(absolute, devExports), filepath.Join(absolute, devArchive)
	if err := os.MkdirAll(config.Archive.Directory, 0o700); err != nil {
		return err
	}
	config.Node.ID = "dev"  // the same at every start, since erasures wait for nodes that stopped without a report
	config.Rotation.At = "" // only `backbone keys rotate` rotates keys
	if o.NATS {
		broker, err := startDevNATS(absolute, state, &config, logger)
		if err != nil {
			return err
		}
		defer broker.Stop()
	}
	return serveDev(ctx, o, dir, listener, cluster, state, config, wire.Options{Modules: o.Modules, Logger: logger, Audit: audit}, printLine)
}

// ignoreCancellation drops the error of work that Ctrl-C interrupted. The next start continues
// that work.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func serveDev(ctx context.Context, o devOptions, dir string, listener net.Listener, cluster *embeddedpg.Cluster, state *devState, config configs.Config, options wire.Options, printLine func(string, ...any)) (err error) {
	options.AllowDevelopmentTokens, options.LogName = true, demoLogName
	server, err := wire.NewServer(ctx, config, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	background, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	go func() {
		defer close(running)
		server.App.Run(background)
	}()
	defer func() {
		stop()
		<-running
	}()
	if err := setUpDemo(ctx, server, o, dir, state, printLine); err != nil {
		return err
	}
	endpoint, credentials := server.KeyService()
	file := devFile{
		HTTP: "http://" + listener.Addr().String(), DSN: config.Database.DSN.Reveal(), EraserDSN: config.Database.EraserDSN.Reveal(),
		Exports: config.Erasure.ExportDirectory, Archive: config.Archive.Directory, KMS: devKMS{Endpoint: endpoint, Credentials: credentials},
		Tenant: demo.Tenant, Tokens: state.Tokens, NATS: config.NATS.URLs.Reveal(),
	}
	for _, e := range demo.Entities {
		file.LegalEntities = append(file.LegalEntities, e.Code)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(background, listener) }()
	if err := writeJSON(filepath.Join(dir, devFileName), file); err != nil {
		return err
	}
	printLine("Ready: %s", file.HTTP)
	if file.NATS != "" {
		printLine("Events are published to %s, stream %s, subjects %s.<tenant>.<legal entity>.<type>", file.NATS, config.NATS.Stream, config.NATS.SubjectPrefix)
	}
	if o.Sample {
		if err := runSample(ctx, o, dir, state, file, printLine); err != nil {
			return fmt.Errorf("sample documents: %w", err)
		}
	}
	printDevHints(printLine, o.Modules, demoSession(o, dir, state, file))
	select {
	case <-ctx.Done():
		printLine("\nStopping…")
		stop()
		return <-served
	case err := <-served:
		return err
	case <-cluster.Done():
		return fault.New(fault.Unavailable, "dev.postgres_died", "PostgreSQL ended by itself; see %s and start again, nothing that was acknowledged is lost", cluster.LogFile())
	}
}

func setUpDemo(ctx context.Context, server *wire.Server, o devOptions, dir string, state *devState, printLine func(string, ...any)) error {
	var progress func(string, int, int)
	if !state.BooksReady {
		printLine("Setting up the demo tenant: two legal entities with books, calendar and rates")
		progress = newProgress(o.Out, o.Terminal).report
	}
	tokens, err := SetUpDemo(ctx, server.App, o.Modules, state.Tokens, !state.BooksReady, progress)
	if err != nil {
		return err
	}
	state.Tokens, state.BooksReady = tokens, true
	return writeJSON(filepath.Join(dir, devStateName), state)
}

// prepareDevDatabase creates the database, migrates it, sets the passwords of its roles, and
// returns a configuration that connects to it.
func prepareDevDatabase(ctx context.Context, cluster *embeddedpg.Cluster, dir string, modules []plugin.Module, printLine func(string, ...any)) (*devState, configs.Config, error) {
	state, err := readDevState(dir)
	if err != nil {
		return nil, configs.Config{}, err
	}
	if err := ensureDatabase(ctx, cluster.SuperuserDSN("postgres")); err != nil {
		return nil, configs.Config{}, err
	}
	if err := wire.Migrate(ctx, cluster.SuperuserDSN(devDatabase), nil, modules...); err != nil {
		return nil, configs.Config{}, err
	}
	schemas := "backbone"
	for _, m := range modules {
		if m.Migrations != nil {
			schemas += ", " + m.Name()
		}
	}
	conn, err := pgx.Connect(ctx, cluster.SuperuserDSN(devDatabase))
	if err != nil {
		return nil, configs.Config{}, err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		// The passwords are hexadecimal, so quoting them is safe; ALTER ROLE takes no
		// parameters.
		"ALTER ROLE backbone_app WITH LOGIN PASSWORD '" + state.AppPassword + "'",
		"ALTER ROLE backbone_eraser WITH LOGIN PASSWORD '" + state.EraserPassword + "'",
		// For users of psql; the program itself names every schema.
		"ALTER ROLE backbone_app IN DATABASE " + devDatabase + " SET search_path = " + schemas,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, configs.Config{}, err
		}
	}
	if err := writeJSON(filepath.Join(dir, devStateName), state); err != nil {
		return nil, configs.Config{}, err
	}
	printLine("PostgreSQL is up on 127.0.0.1:%d", cluster.Port())
	config := configs.Default()
	config.Database.DSN = configs.DSN(cluster.DSN("backbone_app", state.AppPassword, devDatabase))
	config.Database.EraserDSN = configs.DSN(cluster.DSN("backbone_eraser", state.EraserPassword, devDatabase))
	config.Webhook.AllowPrivateNetworks, config.Webhook.AllowHTTP = true, true // a user tries webhooks with a receiver on this machine
	return state, config, nil
}

// readDevState reads the state of earlier runs and generates missing passwords.
func readDevState(dir string) (*devState, error) {
	state := &devState{}
	if err := readJSON(filepath.Join(dir, devStateName), state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", devStateName, err)
	}
	for _, password := range []*string{&state.AppPassword, &state.EraserPassword} {
		if *password == "" {
			*password = newPassword()
		}
	}
	return state, nil
}

// newPassword is hexadecimal, so that it needs no quoting in SQL.
func newPassword() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func ensureDatabase(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", devDatabase).Scan(&exists); err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+devDatabase+" TEMPLATE template0 ENCODING 'UTF8'")
	return err
}

// listenLoopback listens on a loopback address. It refuses any other, because the tokens of the
// demo are in a file.
func listenLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "dev.http_invalid", "--http wants host:port such as 127.0.0.1:8080")
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.New(fault.Invalid, "dev.http_not_loopback", "backbone dev listens on loopback only; use 127.0.0.1, or backbone serve for a real deployment")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fault.New(fault.FailedPrecondition, "dev.http_in_use", "%s is not free; choose another with --http 127.0.0.1:PORT", address).WithCause(err)
	}
	return l, nil
}

func devLogger(dir string) (*os.File, *slog.Logger, error) {
	f, err := openLog(filepath.Join(dir, "backbone.log"))
	if err != nil {
		return nil, nil, err
	}
	return f, slog.New(slog.NewJSONHandler(f, nil)), nil
}

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return f, nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// writeJSON writes a file atomically. Only its owner can read it.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return faultInFile(path, replaceFile(path, append(text, '\n')))
}

// devNATS is the folder of the NATS server's streams.
const devNATS = "nats"

// startDevNATS starts a NATS server with JetStream in the data folder and configures the fan-out
// to it. The server uses the port of the last run if that is free.
func startDevNATS(dir string, state *devState, config *configs.Config, logger *slog.Logger) (*natsd.Server, error) {
	if state.NATSPassword == "" {
		state.NATSPassword = rand.Text()
	}
	server, err := natsd.Start(natsd.Config{
		Directory: filepath.Join(dir, devNATS), Port: state.NATSPort, User: "backbone", Password: state.NATSPassword, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	state.NATSPort = server.Port()
	config.NATS.URLs = configs.DSN(server.URL())
	return server, nil
}

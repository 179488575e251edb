package moduletest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
	"github.com/erpbackbone/backbone/test/testkit"
)

// node is a running node with a database and keys of its own.
type node struct {
	app   *wire.App
	close func() error
}

// shared are the nodes of a package by the names of their modules.
var shared = struct {
	mu    sync.Mutex
	nodes map[string]*node
}{nodes: map[string]*node{}}

// nodeOf gives the node of the package for modules, as to make a database and to start a node takes
// longer than most tests. In packages whose TestMain does not call testkit.Run each test has a node
// of its own.
func nodeOf(t testing.TB, modules []plugin.Module) *wire.App {
	t.Helper()
	server := testkit.Server(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var names []string
	for _, m := range modules {
		names = append(names, m.Name())
	}
	key := strings.Join(names, " ")
	if n := shared.nodes[key]; n != nil {
		return n.app
	}
	n, err := newNode(server, modules)
	require.NoError(t, err)
	if testkit.AtEnd(n.close) {
		shared.nodes[key] = n
		return n.app
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Errorf("closing the test's node: %v", err)
		}
	})
	return n.app
}

// Database makes a database for the test that is migrated for modules, and returns the superuser's
// DSN for it.
func Database(t testing.TB, modules ...plugin.Module) (superuserDSN string) {
	t.Helper()
	migrate, template, err := migrations(modules)
	require.NoError(t, err)
	return testkit.Database(t, migrate, template)
}

// migrations are those of modules, and the name of the template database that has them.
func migrations(modules []plugin.Module) (migrate func(ctx context.Context, dsn string) error, template string, err error) {
	trees := []fs.FS{backbonesql.Migrations, keystoresql.Migrations}
	for _, m := range modules {
		if m.Migrations != nil {
			trees = append(trees, m.Migrations)
		}
	}
	fingerprint, err := testkit.Fingerprint(trees...)
	return func(ctx context.Context, dsn string) error { return wire.Migrate(ctx, dsn, nil, modules...) }, "modules_" + fingerprint, err
}

// newNode starts a node. Its legal entities have no tables of their own: the node does not
// behave differently with them, and making them takes longer than many a test.
func newNode(server string, modules []plugin.Module) (_ *node, err error) {
	ctx, stop := context.WithCancel(context.Background())
	undo := []func() error{func() error { stop(); return nil }}
	closeAll := func() (err error) {
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	migrate, template, err := migrations(modules)
	if err != nil {
		return nil, err
	}
	dsn, drop, err := testkit.CreateDatabase(ctx, server, migrate, template)
	if err != nil {
		return nil, err
	}
	undo = append(undo, drop)
	directory, err := os.MkdirTemp("", "moduletest")
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() error { return os.RemoveAll(directory) })
	config := configs.Default()
	config.Database.DSN, config.Database.EraserDSN, config.Database.PhysicalPartitions = configs.DSN(dsn), configs.DSN(dsn), 0
	config.KMS.LocalDirectory, config.Erasure.ExportDirectory = directory+"/keys", directory+"/exports"
	app, err := wire.OpenWithKeys(ctx, config, wire.Options{Modules: modules, LogName: "test.example.org"})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		app.Run(ctx)
	}()
	undo = append(undo, func() error {
		stop()
		<-ended
		app.Close()
		return nil
	})
	return &node{app, closeAll}, nil
}

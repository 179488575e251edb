package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/ports"
)

// program is what all nodes of all runs share, because it never changes: compiled schemas and
// policies.
type program struct {
	schemas  *schemaCache
	catalog  *module.Catalog
	policies *opa.Engine
}

var theProgram = sync.OnceValues(func() (p program, err error) {
	p.schemas = &schemaCache{compiler: jsonschema.New()}
	if p.catalog, err = wire.Catalog(p.schemas, tillModule{}); err != nil {
		return p, err
	}
	p.policies, err = wire.NewPolicyEngine(p.catalog, 1<<16)
	return p, err
})

// schemaCache compiles each schema once: compiling is most of what starting a node costs.
type schemaCache struct {
	compiler ports.SchemaCompiler
	compiled sync.Map // schemas by their text
}

// Compile implements ports.SchemaCompiler.
func (c *schemaCache) Compile(schema json.RawMessage) (ports.Schema, error) {
	if known, found := c.compiled.Load(string(schema)); found {
		return known.(ports.Schema), nil
	}
	s, err := c.compiler.Compile(schema)
	if err == nil {
		c.compiled.Store(string(schema), s)
	}
	return s, err
}

// node is a place for processes of the program, one at a time.
type node struct {
	world *world
	name  string
	clock *nodeClock
	runs  int

	mu  sync.Mutex
	run *run // nil while the node is down
}

// run is one process of a node, from its start to its end.
type run struct {
	node     *node
	link     *link
	app      *wire.App
	services wire.Services
	ctx      context.Context
	stop     context.CancelFunc
	ended    chan struct{} // closed when nothing of it runs any more
}

// nodeClock is the clock of a machine, which may be wrong.
type nodeClock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Now implements ports.Clock.
func (c *nodeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *nodeClock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

// start starts a process. A start that fails, as at a bad moment, leaves the node down.
func (n *node) start(ctx context.Context) error {
	w := n.world
	n.runs++
	l := newLink(w, fmt.Sprintf("%s.%d", n.name, n.runs))
	config := w.config()
	config.Node.ID = l.name
	stores := w.stores()
	stores.Appender = w.database.AppenderOn(n.clock)
	stores.ProjectionVersions = watchedSwitches{w, stores.ProjectionVersions}
	stores.Subscriptions = slowDeliveries{l, stores.Subscriptions}
	keys := wrapKeys(l, w.keys())
	in := wire.Infrastructure{
		Stores: wrapStores(l, stores), Keys: &keys, Clock: n.clock, IDs: system.NewIDs(), Catalog: w.catalog, Schemas: w.schemas, Policies: policyEnginePort{l, w.policies},
		Handlers:   map[string]ports.ProjectionHandler{balances: handler{l, balancesHandler{}}},
		ReadModels: map[string]ports.ReadModelSource{module.ReadModelPath("till", "balances"): readModelSourcePort{l, balancesReport{w.database.ReadModels}}},
	}
	logger := slog.New(slog.DiscardHandler)
	if w.logs != nil {
		logger = slog.New(slog.NewTextHandler(w.logs, nil)).With("node", l.name)
	}
	app, err := wire.OpenOn(ctx, config, in, wire.Options{Logger: logger, LogName: logName})
	if err != nil {
		return err
	}
	if err := app.RecoverDecided(ctx); err != nil {
		app.Close()
		return err
	}
	err = app.OfferVerifications(ctx)
	if w.sender != nil && err == nil {
		err = app.DeliverWith(webhookSenderPort{l, w.sender})
	}
	if w.broker != nil && err == nil {
		err = app.PublishTo("simulation", publisherPort{l, w.broker})
	}
	if err != nil {
		app.Close()
		return err
	}
	r := &run{node: n, link: l, app: app, services: app.Services(), ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		app.Run(r.ctx)
		app.Close()
	}()
	n.mu.Lock()
	n.run = r
	n.mu.Unlock()
	return nil
}

// current is the process that runs now, nil while the node is down.
func (n *node) current() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run
}

// kill ends the process at once: none of its calls reaches anything from now on.
func (n *node) kill() {
	if r := n.take(); r != nil {
		r.link.mu.Lock()
		r.link.dead = true
		r.link.mu.Unlock()
		r.stop()
		<-r.ended
	}
}

// shutDown ends the process as an operator does.
func (n *node) shutDown() {
	if r := n.take(); r != nil {
		r.stop()
		<-r.ended
	}
}

func (n *node) take() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.run
	n.run = nil
	return r
}

// freeze stops the process in one of its next calls, none for the zero value.
func (n *node) freeze(f freezing) {
	if r := n.current(); r != nil {
		r.link.mu.Lock()
		r.link.freezing = f
		r.link.mu.Unlock()
	}
}

// frozenFor is how long the process will not move yet.
func (n *node) frozenFor() time.Duration {
	r := n.current()
	if r == nil {
		return 0
	}
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	return time.Until(r.link.frozen)
}

// cutOff cuts the node off from the key store for a time.
func (n *node) cutOff(d time.Duration) {
	if r := n.current(); r != nil {
		r.link.mu.Lock()
		r.link.cutOff = time.Now().Add(d)
		r.link.mu.Unlock()
	}
}

// config is that of production, with work that comes round as often as a short run needs.
func (w *world) config() configs.Config {
	c := configs.Default()
	c.Rotation.At, c.Webhook.Concurrency = "", 2
	n := time.Duration(0)
	shift(reflect.ValueOf(&c).Elem(), &n)
	return c
}

// shift adds some nanoseconds to each duration, so that no two tickers tick at the same time: which
// of two that do is heard first is chance.
func shift(v reflect.Value, n *time.Duration) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[time.Duration]() && f.Int() > 0:
			*n += 7919 * time.Nanosecond
			f.SetInt(f.Int() + int64(*n))
		case f.Kind() == reflect.Struct && f.CanSet():
			shift(f, n)
		}
	}
}

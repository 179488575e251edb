package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/fanout"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

// natsPublisher names the cursors and leases of the fan-out to NATS.
const natsPublisher = "nats"

// fanoutRunner publishes the log to a cluster of a message broker.
type fanoutRunner struct {
	publisher  *nats.Publisher
	dispatcher atomic.Pointer[fanout.Dispatcher] // the publisher calls it back while it is made
}

// openFanout makes the fan-out, if one is configured. A broker that is away may come
// later; a stream that does not do is an error at once.
func (a *App) openFanout(ctx context.Context, observer fanout.Observer) error {
	c := a.Config.NATS
	if !c.Configured() {
		return nil
	}
	f := &fanoutRunner{}
	var err error
	f.publisher, err = nats.Open(nats.Config{
		URLs: strings.Split(c.URLs.Reveal(), ","), Credentials: c.Credentials, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Stream: c.Stream, SubjectPrefix: c.SubjectPrefix, Replicas: c.Replicas, DuplicateWindow: c.DuplicateWindow, MaxAge: c.MaxAge,
		Batch: c.Batch, Windows: c.Workers, Timeout: c.Timeout, Logger: a.Logger,
		Reconnected: func() {
			if d := f.dispatcher.Load(); d != nil {
				d.Wake()
			}
		},
	})
	if err != nil {
		return err
	}
	f.dispatcher.Store(fanout.New(fanout.Config{
		Name: natsPublisher, Node: a.Config.Node.ID, Publisher: f.publisher, Cursors: a.Store, Leases: a.Store.Leases(), Heads: a.Watch, Log: a.Store,
		Encoder: presenter{opener: a.Vault(), upcaster: a.Upcaster, entities: a.Store, reader: a.readerOf(c.Reader)},
		Clock:   system.Clock{}, Logger: a.Logger, Observer: observer, Batch: c.Batch, Workers: c.Workers,
	}))
	a.fanout = f
	switch err := f.publisher.Verify(ctx); fault.KindOf(err) {
	case fault.FailedPrecondition:
		return err
	default:
		if err != nil {
			a.Logger.WarnContext(ctx, "NATS was not reached yet; events are published once it is", "code", fault.CodeOf(err))
		}
		return nil
	}
}

// fanoutReady says what is wrong with the fan-out; requests are served all the same.
func (a *App) fanoutReady(out map[string]error) {
	if a.fanout == nil {
		return
	}
	out["fanout"] = nil
	if err := a.fanout.dispatcher.Load().Health(); err != nil {
		out["fanout"] = httpapi.Degraded{Err: err}
	}
}

// FanoutOptions are the flags of `backbone fanout status`.
type FanoutOptions struct {
	Config configs.Config
	JSON   bool
	Out    io.Writer
}

// FanoutStatus shows how far the fan-out is in every legal entity.
func FanoutStatus(ctx context.Context, o FanoutOptions) error {
	if o.Config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	store, err := postgres.Open(ctx, postgres.Config{DSN: o.Config.Database.DSN.Reveal(), MaxClockSkew: -1})
	if err != nil {
		return err
	}
	defer store.Close()
	lines, err := fanout.Status(ctx, fanout.StatusSources{
		Cursors: store, Heads: store, Leases: store.Leases(), Entities: store, Log: store, Clock: system.Clock{},
	}, natsPublisher)
	if err != nil {
		return err
	}
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"partitions": lines})
	}
	table := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "TENANT\tLEGAL ENTITY\tPUBLISHED\tHEAD\tLAG\tOLDEST\tNODE\tLAST ERROR\tNEXT ATTEMPT")
	held := map[string]int{}
	for i := range lines {
		l := &lines[i]
		oldest, problem, node, next := "-", "-", "-", "-"
		if l.LagEvents > 0 {
			oldest = time.Duration(l.LagSeconds * float64(time.Second)).Round(time.Second).String()
		}
		if l.LastError != "" {
			problem = fmt.Sprintf("%s (%d in a row)", l.LastError, l.Failures)
		}
		if l.Holder != "" {
			node, _, _ = strings.Cut(l.Holder, "/")
			held[node]++
		}
		if l.NextAttemptAt != nil {
			next = "now"
			if wait := time.Until(*l.NextAttemptAt); wait > 0 {
				next = "in " + wait.Round(time.Second).String()
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", l.TenantID, l.LegalEntity, l.PublishedThrough, l.Head, l.LagEvents, oldest, node, problem, next)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(held)) {
		fmt.Fprintf(o.Out, "%s publishes %d of %d legal entities.\n", node, held[node], len(lines))
	}
	return nil
}

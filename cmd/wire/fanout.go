package wire

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/fanout"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// natsPublisher is the name under which the fan-out to NATS keeps its cursors and leases.
const natsPublisher = "nats"

// fanoutRunner publishes the log to a message broker.
type fanoutRunner struct {
	publisher  *nats.Publisher
	dispatcher atomic.Pointer[fanout.Dispatcher] // set after the publisher, whose Reconnected may be called before
	close      func()
}

// composeFanout composes the fan-out if one is configured. The node starts while the broker is
// unavailable; it does not start when the stream has wrong settings.
func (a *App) composeFanout(ctx context.Context) error {
	c := a.config.NATS
	if !c.Configured() {
		return nil
	}
	f := &fanoutRunner{}
	var err error
	f.publisher, err = nats.Open(nats.Config{
		URLs: strings.Split(c.URLs.Reveal(), ","), Credentials: c.Credentials, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Stream: c.Stream, SubjectPrefix: c.SubjectPrefix, MaxAge: c.MaxAge, Logger: a.logger,
		Limits: nats.Limits{Replicas: c.Replicas, DuplicateWindow: c.DuplicateWindow, Timeout: c.Timeout, Batch: c.Batch},
		Reconnected: func() {
			if d := f.dispatcher.Load(); d != nil {
				d.Wake()
			}
		},
	})
	if err != nil {
		return err
	}
	if err := a.publishTo(f, natsPublisher, f.publisher); err != nil {
		f.publisher.Close()
		return err
	}
	f.close = f.publisher.Close
	switch err := f.publisher.Verify(ctx); fault.KindOf(err) {
	case fault.FailedPrecondition:
		return err
	default:
		if err != nil {
			a.logger.WarnContext(ctx, "NATS was not reached yet; events are published once it is", "code", fault.CodeOf(err))
		}
		return nil
	}
}

// PublishTo composes the fan-out of the log to a broker under a name, which Run does then. Call it
// before Run.
func (a *App) PublishTo(name string, broker ports.Publisher) error {
	return a.publishTo(&fanoutRunner{close: func() {}}, name, broker)
}

func (a *App) publishTo(f *fanoutRunner, name string, broker ports.Publisher) error {
	c := a.config.NATS
	dispatcher, err := fanout.New(fanout.Config{
		Name: name, Node: a.config.Node.ID, Publisher: broker, Cursors: a.Store.Publishers, Leases: a.Store.Leases, Heads: bookHeads{a.heads}, Log: a.Store.Events,
		Encoder: presenter{opener: a.vault, upcaster: a.Upcaster, entities: a.Store.Directory, reader: a.readerOf(c.Reader, disclosure.Purpose{Operation: "fanout"})},
		Clock:   a.clock, Logger: a.logger, Observer: a.metrics, Limits: fanout.Limits{Batch: c.Batch, Workers: c.Workers}, Timing: fanout.StandardTiming,
	})
	if err != nil {
		return err
	}
	f.dispatcher.Store(dispatcher)
	a.fanout = f
	return nil
}

// FanoutStatus reports how far every legal entity of a database is published to NATS.
func FanoutStatus(ctx context.Context, dsn string) ([]fanout.PartitionStatus, error) {
	store, err := OpenReader(ctx, dsn, configs.Archive{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return fanout.Status(ctx, fanout.StatusSources{
		Cursors: store.Publishers, Heads: store.Events, Leases: store.Leases, Entities: store.Directory, Log: store.Events, Clock: system.Clock{},
	}, natsPublisher)
}

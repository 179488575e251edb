package wire

import (
	"context"
	"os"
	"sync"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/witness"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// globalLog is the work of a node for the global log.
type globalLog struct {
	sequencer    *globallog.Sequencer
	checkpointer *globallog.Checkpointer // nil without a key service
	mirror       *globallog.Mirror       // nil: none is configured
}

// composeGlobalLog composes the sequencer and, if there is a key service, the checkpointer and the mirror.
func (a *App) composeGlobalLog(ctx context.Context) (err error) {
	config := globallog.Config{Log: a.Store.GlobalLog, Leases: a.Store.Leases, Heads: a.heads, Node: a.config.Node.ID, Logger: a.logger, Observer: a.metrics}
	if p := a.personal; p != nil {
		witnesses, err := witnessClients(a.config.GlobalLog)
		if err != nil {
			return err
		}
		mirror, err := openObjectStore(ctx, "mirror", a.config.Mirror.ObjectStore, a.config.Mirror.Lock)
		if err != nil {
			return err
		}
		if mirror != nil {
			a.globalLog.mirror = globallog.NewMirror(globallog.MirrorConfig{Tree: a.Store.GlobalLog, Store: mirror, Logger: a.logger, Observer: a.metrics})
		}
		a.globalLog.checkpointer, err = globallog.NewCheckpointer(globallog.CheckpointerConfig{
			Log: a.Store.GlobalLog, Signers: newCheckpointSigners(p.logName, p.Keys), Opener: signednote.Opener{}, Exports: p.Exports, Mirror: a.globalLog.mirror, Witnesses: witnesses, LogName: p.logName,
			Logger: a.logger, Observer: a.metrics, Limits: globallog.CheckpointLimits{Interval: a.config.GlobalLog.CheckpointInterval, ExportInterval: a.config.GlobalLog.ExportInterval},
		})
		if err != nil {
			return err
		}
		config.Grown = a.globalLog.checkpointer.Grown
	}
	if a.personal == nil && a.config.Mirror.IsConfigured() {
		a.logger.Warn("the mirror gets nothing: without a key service there are no checkpoints")
	}
	a.globalLog.sequencer = globallog.New(config)
	return nil
}

// witnessClients are those of the witnesses that have an address in the policy.
func witnessClients(c configs.GlobalLog) (clients []ports.Witness, err error) {
	if c.WitnessPolicy == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.WitnessPolicy)
	if err != nil {
		return nil, fault.New(fault.Invalid, "config.policy_unreadable", "the file of global_log.witness_policy cannot be read").WithCause(err)
	}
	policy, err := domain.ParsePolicy(text)
	if err != nil {
		return nil, err
	}
	for _, w := range policy.Witnesses {
		if w.URL != "" {
			clients = append(clients, witness.NewClient(w.URL, w.Key, c.WitnessTimeout))
		}
	}
	return clients, nil
}

// run works until ctx ends.
func (g *globalLog) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { g.sequencer.Run(ctx) })
	if g.checkpointer != nil {
		running.Go(func() { g.checkpointer.Run(ctx) })
	}
	if g.mirror != nil {
		running.Go(func() { g.mirror.Run(ctx) })
	}
	running.Wait()
}

// restorerActor is the actor of the events of a new incarnation.
const restorerActor = "s-backbone-restore"

// BeginIncarnation begins a new incarnation of the global log after a restore, see globallog.Incarnations. The App has
// keys.
func (a *App) BeginIncarnation(ctx context.Context, reason string, isForced bool, progress func(done, total int)) (globallog.Incarnation, error) {
	p := a.personal
	incarnations := globallog.Incarnations{IncarnationsConfig: globallog.IncarnationsConfig{
		Log: a.Store.GlobalLog, Entities: a.Store.Directory, Signers: newCheckpointSigners(p.logName, p.Keys), Opener: signednote.Opener{}, Exports: p.Exports, LogName: p.logName,
		Append: func(ctx context.Context, le ports.LegalEntity, d event.Draft) error {
			_, _, err := a.appends.Append(ctx, eventappend.Request{
				LegalEntity: le, Actor: event.Actor{Type: event.System, ID: restorerActor, Name: "restore"}, PersonID: restorerActor, Drafts: []event.Draft{d},
				Streams: []concurrency.StreamExpectation{{Stream: d.Stream, Expected: concurrency.NoStream()}},
			})
			if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
				return nil
			}
			return err
		},
	}}
	return incarnations.Begin(ctx, reason, isForced, progress)
}

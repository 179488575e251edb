package simulation

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/ports"
)

// handler passes the calls of a projection's handler through the link, so that it is slow and
// fails.
type handler struct {
	link *link
	ports.ProjectionHandler
}

// Apply implements ports.ProjectionHandler.
func (h handler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	_, err := h.link.call(ctx, about("Handler.Apply", b.Projection, b.Version, b.Partition), func() error {
		if err := h.ProjectionHandler.Apply(ctx, tx, b); err != nil {
			return err
		}
		if p := h.link.world.poison; p != nil {
			return p.strike(ctx, h.link.draw(about("poison", b.Version, b.Partition)), b)
		}
		return nil
	})
	return err
}

// Reset implements ports.ProjectionResetter.
func (h handler) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return h.ProjectionHandler.(ports.ProjectionResetter).Reset(ctx, tx, b)
}

// Tables implements ports.ProjectionTables: only projections that name their tables are rebuilt. The
// memory store keeps rows by version, and does not look at the names.
func (h handler) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{{Name: "till_balances"}}
}

// balancesReport answers the read model of balances.
type balancesReport struct{ rows *memory.ReadModels }

// balanceLine is a row of the report.
type balanceLine struct {
	Till string `json:"till"`
	tillState
}

// Query implements ports.ReadModelSource. The footer has the sequence that the rows include.
func (r balancesReport) Query(_ context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	out := ports.Report{Rows: []any{}, Footer: ports.ReportFields{{Name: "known", Value: q.Known}}}
	prefix := rowKey(q.Version, q.Partition, "")
	for _, row := range r.rows.Rows(balances, prefix) {
		if b := row.Value.(*balanceRow).at(q.Known); b != nil {
			out.Rows = append(out.Rows, balanceLine{row.Key[len(prefix):], b.tillState})
		}
	}
	return out, nil
}

// watchedSwitches requires that readers see no earlier state after a switch to another version.
type watchedSwitches struct {
	world *world
	wire.ProjectionStore
}

// SwitchProjection implements ports.ProjectionVersions.
func (s watchedSwitches) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	err := s.ProjectionStore.SwitchProjection(ctx, w)
	if err != nil || w.Force {
		return err
	}
	from, to := s.world.positions(w.Projection, w.From), s.world.positions(w.Projection, w.To)
	for p, n := range from {
		s.world.require(to[p] >= n, "a switch shows no earlier state", "version %d of %s in partition %d is at %d, and version %d was at %d", w.To, w.Projection, p, to[p], w.From, n)
	}
	return nil
}

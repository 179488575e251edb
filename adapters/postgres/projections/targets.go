package projections

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Targets recomputes the rows of single entities, and finds those of a person.
type Targets struct{ *work }

// NewTargets makes the store that recomputes rows.
func NewTargets(c *Checkpoints) *Targets {
	return &Targets{c.work}
}

var _ ports.ProjectionTargetStore = (*Targets)(nil)

// RebuildTarget implements ports.ProjectionTargetStore. The lock of the checkpoint keeps other
// transactions from writing rows of the version in the partition, switching to it, resetting
// or dropping it.
func (s *Targets) RebuildTarget(ctx context.Context, r ports.TargetRebuild, h ports.ProjectionHandler) (ports.TargetChange, error) {
	return s.recompute(ctx, r.ProjectionWork, r.DryRun, func(tx pgx.Tx, c *ports.Checkpoint) (ports.TargetChange, error) {
		if c.Sequence < r.MinCheckpoint {
			return ports.TargetChange{}, projection.TargetBehind(r.Projection, r.Version)
		}
		f := targetRebuild{store: s, tx: tx, request: r, handler: h, change: ports.TargetChange{Sequence: c.Sequence}}
		err := f.run(ctx)
		return f.change, err
	})
}

// targetRebuild recomputes the rows of one entity in a transaction that has locked the checkpoint.
type targetRebuild struct {
	store     *Targets
	tx        pgx.Tx
	request   ports.TargetRebuild
	handler   ports.ProjectionHandler
	sequences []int64 // of the entity's events up to the checkpoint
	change    ports.TargetChange
}

func (f *targetRebuild) run(ctx context.Context) error {
	events, err := f.readEvents(ctx)
	if err != nil {
		return err
	}
	f.sequences = pg.Map(events, func(e *event.Recorded) int64 { return int64(e.Sequence) })
	events = slices.DeleteFunc(events, func(e event.Recorded) bool {
		return len(f.request.Types) > 0 && !slices.Contains(f.request.Types, e.Type)
	})
	before, err := f.digestRows(ctx)
	if err != nil {
		return err
	}
	for _, table := range f.request.Target.Tables {
		statement, arguments := f.selection(table)
		if _, err := f.tx.Exec(ctx, "DELETE FROM "+tableName(table.ProjectionTable)+" AS t WHERE "+statement, arguments...); err != nil {
			return err
		}
	}
	if err := f.applyEvents(ctx, events); err != nil {
		return err
	}
	after, err := f.digestRows(ctx)
	if err != nil {
		return err
	}
	for i, table := range f.request.Target.Tables {
		f.change.Tables = append(f.change.Tables, compareDigests(table, before[i], after[i]))
	}
	return nil
}

// targetPage is how many events are read and applied at once; their payloads have at most
// lockedBytes.
const targetPage = 500

// readEvents returns the entity's events up to the checkpoint, in the order of the log and
// without their payloads.
func (f *targetRebuild) readEvents(ctx context.Context) ([]event.Recorded, error) {
	var out []event.Recorded
	for _, streamType := range f.request.Target.Streams {
		q := ports.StreamQuery{
			Partition: f.request.Partition, Stream: event.StreamID{Type: streamType, ID: f.request.Entity},
			Direction: ports.Backward, Limit: targetPage, WithoutData: true,
		}
		for {
			page, err := f.store.events.StreamPage(ctx, f.tx, &q)
			if err != nil {
				return nil, err
			}
			for i := range page {
				if page[i].Sequence <= f.change.Sequence {
					out = append(out, page[i])
				}
			}
			if f.request.Limit > 0 && len(out) > f.request.Limit {
				return nil, untranslatedError{projection.TargetTooLarge(f.request.Limit)}
			}
			if len(page) < targetPage {
				break
			}
			if q.From = page[len(page)-1].StreamVersion - 1; q.From == 0 {
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b event.Recorded) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return out, nil
}

const listPayloads = `SELECT p.sequence, p.salt, p.redactions, p.payload FROM unnest($2::bigint[]) AS k (wanted)
	CROSS JOIN LATERAL (SELECT x.sequence, x.salt, x.redactions, x.payload FROM backbone.event_payloads x WHERE x.partition_id = $1 AND x.sequence = k.wanted LIMIT 1) p`

// loadPayloads returns the first of the events with their payloads: as many as fit into
// lockedBytes, at least one.
func (f *targetRebuild) loadPayloads(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	sequences := pg.Map(events, func(e *event.Recorded) event.Sequence { return e.Sequence })
	sizes, err := f.store.events.PayloadSizes(ctx, f.tx, f.request.Partition, sequences)
	if err != nil {
		return nil, err
	}
	n := 0
	for left := lockedBytes; n < len(events) && (n == 0 || sizes[sequences[n]] <= left); n++ {
		left -= sizes[sequences[n]]
	}
	out := slices.Clone(events[:n])
	rows, err := f.tx.Query(ctx, listPayloads, int32(f.request.Partition), sequences[:n])
	if err != nil {
		return nil, err
	}
	var sequence int64
	var salt, redactions, payload []byte
	_, err = pgx.ForEachRow(rows, []any{&sequence, &salt, &redactions, &payload}, func() (err error) {
		at, found := slices.BinarySearchFunc(out, event.Sequence(sequence), func(e event.Recorded, n event.Sequence) int { return cmp.Compare(e.Sequence, n) })
		if found {
			copy(out[at].Salt[:], salt)
			out[at].Payload = slices.Clone(payload)
			out[at].Redactions, err = eventlog.DecodeRedactions(redactions)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, _, err = f.store.events.FillArchived(ctx, f.tx, out, lockedBytes, eventlog.Every)
	return out, err
}

// selection selects the entity's rows of a table with the alias t.
func (f *targetRebuild) selection(t ports.TargetTable) (statement string, arguments []any) {
	statement, arguments = "t.partition_id = $1 AND t.version = $2", []any{int32(f.request.Partition), int32(f.request.Version)}
	switch {
	case t.Entity != "":
		return statement + " AND t." + pgx.Identifier{t.Entity}.Sanitize() + " = $3", append(arguments, f.request.Entity)
	case f.request.Target.ID != "":
		return statement, arguments
	default:
		return statement + " AND t.sequence = ANY ($3)", append(arguments, f.sequences)
	}
}

// digestRows returns for each table a digest of each row of the entity by key. The values stay in
// the database.
func (f *targetRebuild) digestRows(ctx context.Context) ([]map[string]string, error) {
	out := make([]map[string]string, len(f.request.Target.Tables))
	for i, table := range f.request.Target.Tables {
		statement, arguments := f.selection(table)
		limit := ""
		if f.request.Limit > 0 {
			limit = fmt.Sprintf(" LIMIT %d", maxRowsPerEvent*f.request.Limit+1)
		}
		found, err := f.tx.Query(ctx, fmt.Sprintf("SELECT json_build_array(%s)::text, encode(sha256(convert_to(to_jsonb(t)::text, 'UTF8')), 'hex') FROM %s AS t WHERE %s%s",
			columnNames(table.ProjectionTable), tableName(table.ProjectionTable), statement, limit), arguments...)
		if err != nil {
			return nil, err
		}
		out[i] = map[string]string{}
		var key, digest string
		if _, err := pgx.ForEachRow(found, []any{&key, &digest}, func() error {
			out[i][key] = digest
			return nil
		}); err != nil {
			return nil, err
		}
		if f.request.Limit > 0 && len(out[i]) > maxRowsPerEvent*f.request.Limit {
			return nil, untranslatedError{projection.TargetTooLarge(maxRowsPerEvent * f.request.Limit)}
		}
	}
	return out, nil
}

// maxRowsPerEvent bounds the compared rows: a journal has more rows than events.
const maxRowsPerEvent = 10

func compareDigests(t ports.TargetTable, before, after map[string]string) ports.TableDifference {
	d := ports.TableDifference{Table: t.Schema + "." + t.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for key, digest := range before {
		switch now, exists := after[key]; {
		case !exists:
			d.OnlyLeft++
		case now != digest:
			d.Changed++
		}
	}
	for key := range after {
		if _, existed := before[key]; !existed {
			d.OnlyRight++
		}
	}
	return d
}

// applyEvents applies the events. It retries events that the version had skipped one by one, and
// resolves the dead letter of one that succeeds.
func (f *targetRebuild) applyEvents(ctx context.Context, events []event.Recorded) error {
	skipped, err := f.skippedEvents(ctx)
	if err != nil {
		return err
	}
	for len(events) > 0 {
		n := 0
		for n < len(events) && n < targetPage && !skipped[events[n].Sequence] {
			n++
		}
		if n == 0 {
			if err := f.retrySkipped(ctx, events[0]); err != nil {
				return err
			}
			events = events[1:]
			continue
		}
		page, err := f.loadPayloads(ctx, events[:n])
		if err != nil {
			return err
		}
		if err := f.applyPage(ctx, f.tx, page); err != nil {
			return markHandlerError(ctx, err)
		}
		f.change.Events += len(page)
		events = events[len(page):]
	}
	return nil
}

func (f *targetRebuild) applyPage(ctx context.Context, tx pgx.Tx, events []event.Recorded) error {
	return f.handler.Apply(ctx, tx, ports.ProjectionBatch{Projection: f.request.Projection, Version: f.request.Version, Partition: f.request.Partition, Events: events})
}

const listPassedOver = `SELECT sequence FROM backbone.dead_letters
	WHERE kind = $1 AND name = $2 AND version = $3 AND partition_id = $4 AND sequence = ANY ($5) AND status IN ('passed', 'skipped')`

func (f *targetRebuild) skippedEvents(ctx context.Context) (map[event.Sequence]bool, error) {
	rows, err := f.tx.Query(ctx, listPassedOver, ports.LetterOfProjection, f.request.Projection, int32(f.request.Version), int32(f.request.Partition), f.sequences)
	if err != nil {
		return nil, err
	}
	out := map[event.Sequence]bool{}
	sequences, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, sequence := range sequences {
		out[event.Sequence(sequence)] = true
	}
	return out, err
}

// retrySkipped tries a skipped event. A failure rolls back to the savepoint before it.
func (f *targetRebuild) retrySkipped(ctx context.Context, e event.Recorded) error {
	page, err := f.loadPayloads(ctx, []event.Recorded{e})
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, f.tx, func(inner pgx.Tx) error { return f.applyPage(ctx, inner, page) })
	if err != nil {
		if err := markHandlerError(ctx, err); ctx.Err() != nil || pg.IsSerializationFailure(err) || pg.IsUnavailable(err) {
			return err
		}
		f.change.PassedOver++
		return nil
	}
	f.change.Events++
	return f.store.resolveSkipped(ctx, f.tx, f.request.ProjectionWork, e.Sequence, f.request.By)
}

// SubjectEntities implements ports.ProjectionTargetStore.
func (s *Targets) SubjectEntities(ctx context.Context, p event.PartitionID, subject shredding.Subject, targets []ports.ProjectionTarget) (out []ports.SubjectEntity, err error) {
	for i, target := range targets {
		for _, t := range target.Tables {
			if t.Subject == "" || t.Entity == "" && target.ID == "" {
				continue
			}
			entity := "$3::text"
			if t.Entity != "" {
				entity = "t." + pgx.Identifier{t.Entity}.Sanitize()
			}
			arguments := []any{int32(p), subject.String()}
			if t.Entity == "" {
				arguments = append(arguments, target.ID)
			}
			rows, err := s.db.Reads.Query(ctx, fmt.Sprintf("SELECT DISTINCT %s FROM %s AS t WHERE t.partition_id = $1 AND %s", entity, tableName(t.ProjectionTable), subjectFilter(t)), arguments...)
			if err != nil {
				return nil, pg.Translate(ctx, err)
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return nil, pg.Translate(ctx, err)
			}
			for _, id := range ids {
				if e := (ports.SubjectEntity{Target: i, Entity: id}); !slices.Contains(out, e) {
					out = append(out, e)
				}
			}
		}
	}
	return out, nil
}

// subjectFilter selects rows with sealed copies of the person $2. Rows without copies have an
// empty text, which the indexes exclude.
func subjectFilter(t ports.TargetTable) string {
	column := "t." + pgx.Identifier{t.Subject}.Sanitize()
	return column + " = $2 AND " + column + " <> ''"
}

// CountCopies implements ports.ProjectionTargetStore.
func (s *Targets) CountCopies(ctx context.Context, p event.PartitionID, subject shredding.Subject, targets []ports.ProjectionTarget) (map[int]int64, error) {
	out := map[int]int64{}
	for _, target := range targets {
		for _, t := range target.Tables {
			if t.Subject == "" {
				continue
			}
			rows, err := s.db.Reads.Query(ctx, fmt.Sprintf("SELECT t.version, count(*) FROM %s AS t WHERE t.partition_id = $1 AND %s GROUP BY t.version", tableName(t.ProjectionTable), subjectFilter(t)),
				int32(p), subject.String())
			if err != nil {
				return nil, pg.Translate(ctx, err)
			}
			var version int32
			var n int64
			if _, err := pgx.ForEachRow(rows, []any{&version, &n}, func() error {
				out[int(version)] += n
				return nil
			}); err != nil {
				return nil, pg.Translate(ctx, err)
			}
		}
	}
	return out, nil
}

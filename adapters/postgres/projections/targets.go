package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Targets rebuilds the rows of single entities, and finds those of a person.
type Targets struct{ *work }

// NewTargets makes the store of the tables that rebuilds write to.
func NewTargets(c *Checkpoints) *Targets {
	return &Targets{c.work}
}

var _ ports.ProjectionTargetStore = (*Targets)(nil)

// replaceRows tells reports in several pages that rows below the checkpoint are others.
const replaceRows = `UPDATE backbone.projection_checkpoints SET generation = generation + 1
	WHERE projection = $1 AND version = $2 AND partition_id = $3`

// errDryRun rolls back what was done to see what it would do.
var errDryRun = errors.New("rehearsed")

// RebuildTarget implements ports.ProjectionTargetStore. The lock of the checkpoint keeps
// out whoever else writes rows of the version in the partition, switches to it, resets
// or drops it.
func (s *Targets) RebuildTarget(ctx context.Context, r ports.TargetRebuild, h ports.ProjectionHandler) (change ports.TargetChange, err error) {
	_, err = s.onCheckpoint(ctx, r.ProjectionWork, func(tx pgx.Tx, c *ports.Checkpoint) (bool, error) {
		if c.Sequence < r.Passed {
			return false, projection.TargetBehind(r.Projection, r.Version)
		}
		f := targetRebuild{store: s, tx: tx, request: r, handler: h, change: ports.TargetChange{Sequence: c.Sequence}}
		if err := f.run(ctx); err != nil {
			return false, err
		}
		if change = f.change; r.DryRun {
			return false, untranslatedError{errDryRun}
		}
		if change.Rows() == 0 {
			return false, nil
		}
		_, err := tx.Exec(ctx, replaceRows, r.Projection, int32(r.Version), int32(r.Partition))
		return false, err
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	if err != nil {
		change = ports.TargetChange{}
	}
	return change, err
}

// targetRebuild is one rebuild of one entity's rows, in a transaction that holds the checkpoint.
type targetRebuild struct {
	store     *Targets
	tx        pgx.Tx
	request   ports.TargetRebuild
	handler   ports.ProjectionHandler
	sequences []int64 // selection the entity's events
	change    ports.TargetChange
}

func (f *targetRebuild) run(ctx context.Context) error {
	events, err := f.read(ctx)
	if err != nil {
		return err
	}
	f.sequences = make([]int64, len(events))
	for i := range events {
		f.sequences[i] = int64(events[i].Sequence)
	}
	events = slices.DeleteFunc(events, func(e event.Recorded) bool {
		return len(f.request.Types) > 0 && !slices.Contains(f.request.Types, e.Type)
	})
	before, err := f.rows(ctx)
	if err != nil {
		return err
	}
	for _, table := range f.request.Target.Tables {
		statement, arguments := f.selection(table)
		if _, err := f.tx.Exec(ctx, "DELETE FROM "+tableName(table.ProjectionTable)+" AS t WHERE "+statement, arguments...); err != nil {
			return err
		}
	}
	if err := f.fold(ctx, events); err != nil {
		return err
	}
	after, err := f.rows(ctx)
	if err != nil {
		return err
	}
	for i, table := range f.request.Target.Tables {
		f.change.Tables = append(f.change.Tables, changed(table, before[i], after[i]))
	}
	return nil
}

// foldPage is how many events are read and handed over at once, of which the payloads
// have no more than levelBytes.
const foldPage = 500

// read gives the entity's events up to the checkpoint, in the order of the log and
// without their payloads.
func (f *targetRebuild) read(ctx context.Context) ([]event.Recorded, error) {
	var out []event.Recorded
	for _, streamType := range f.request.Target.Streams {
		q := ports.StreamQuery{
			Partition: f.request.Partition, Stream: event.StreamID{Type: streamType, ID: f.request.Entity},
			Direction: ports.Backward, Limit: foldPage, WithoutData: true,
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
			if len(page) < foldPage {
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

const listPayloads = `SELECT p.sequence, p.salt, p.payload FROM unnest($2::bigint[]) AS k (wanted)
	CROSS JOIN LATERAL (SELECT x.sequence, x.salt, x.payload FROM backbone.event_payloads x WHERE x.partition_id = $1 AND x.sequence = k.wanted LIMIT 1) p`

// load gives the first of the events with their payloads: as many as fit into
// levelBytes, and at least one.
func (f *targetRebuild) load(ctx context.Context, events []event.Recorded) ([]event.Recorded, error) {
	sequences := make([]event.Sequence, len(events))
	for i := range events {
		sequences[i] = events[i].Sequence
	}
	sizes, err := f.store.events.PayloadSizes(ctx, f.tx, f.request.Partition, sequences)
	if err != nil {
		return nil, err
	}
	n := 0
	for left := levelBytes; n < len(events) && (n == 0 || sizes[sequences[n]] <= left); n++ {
		left -= sizes[sequences[n]]
	}
	out := slices.Clone(events[:n])
	rows, err := f.tx.Query(ctx, listPayloads, int32(f.request.Partition), sequences[:n])
	if err != nil {
		return nil, err
	}
	var sequence int64
	var salt, payload []byte
	_, err = pgx.ForEachRow(rows, []any{&sequence, &salt, &payload}, func() error {
		at, found := slices.BinarySearchFunc(out, event.Sequence(sequence), func(e event.Recorded, n event.Sequence) int { return cmp.Compare(e.Sequence, n) })
		if found {
			copy(out[at].Salt[:], salt)
			out[at].Payload = slices.Clone(payload)
		}
		return nil
	})
	return out, err
}

// selection chooses the entity's rows of a table, whose alias is t.
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

// rows gives by table a digest of each row of the entity by its key. The values stay in
// the database.
func (f *targetRebuild) rows(ctx context.Context) ([]map[string]string, error) {
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

// maxRowsPerEvent bounds what is compared: a journal has more rows than events.
const maxRowsPerEvent = 10

func changed(t ports.TargetTable, before, after map[string]string) ports.TableDifference {
	d := ports.TableDifference{Table: t.Schema + "." + t.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for key, digest := range before {
		switch now, stands := after[key]; {
		case !stands:
			d.OnlyLeft++
		case now != digest:
			d.Changed++
		}
	}
	for key := range after {
		if _, stood := before[key]; !stood {
			d.OnlyRight++
		}
	}
	return d
}

// fold hands the events over. Those that the version has gone on without are tried
// alone: one that is digested now is resolved.
func (f *targetRebuild) fold(ctx context.Context, events []event.Recorded) error {
	without, err := f.skippedEvents(ctx)
	if err != nil {
		return err
	}
	for len(events) > 0 {
		n := 0
		for n < len(events) && n < foldPage && !without[events[n].Sequence] {
			n++
		}
		if n == 0 {
			if err := f.retrySkipped(ctx, events[0]); err != nil {
				return err
			}
			events = events[1:]
			continue
		}
		page, err := f.load(ctx, events[:n])
		if err != nil {
			return err
		}
		if err := f.apply(ctx, f.tx, page); err != nil {
			return markHandlerError(ctx, err)
		}
		f.change.Events += len(page)
		events = events[len(page):]
	}
	return nil
}

func (f *targetRebuild) apply(ctx context.Context, tx pgx.Tx, events []event.Recorded) error {
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
	var sequence int64
	_, err = pgx.ForEachRow(rows, []any{&sequence}, func() error {
		out[event.Sequence(sequence)] = true
		return nil
	})
	return out, err
}

const resolvePassedOver = `UPDATE backbone.dead_letters SET status = 'resolved', settled_at = $6, settled_by = $7
	WHERE kind = $1 AND name = $2 AND version = $3 AND partition_id = $4 AND sequence = $5`

// retrySkipped tries an event that was passed over. What fails leaves the transaction as it was.
func (f *targetRebuild) retrySkipped(ctx context.Context, e event.Recorded) error {
	page, err := f.load(ctx, []event.Recorded{e})
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, f.tx, func(inner pgx.Tx) error { return f.apply(ctx, inner, page) })
	if err != nil {
		if err := markHandlerError(ctx, err); ctx.Err() != nil || pg.IsSerializationFailure(err) || pg.IsUnavailable(err) {
			return err
		}
		f.change.PassedOver++
		return nil
	}
	f.change.Events++
	_, err = f.tx.Exec(ctx, resolvePassedOver, ports.LetterOfProjection, f.request.Projection, int32(f.request.Version), int32(f.request.Partition), int64(e.Sequence),
		f.store.db.Now(), pgtype.Text{String: f.request.By, Valid: f.request.By != ""})
	return err
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

// subjectFilter chooses rows with sealed copies of the person $2. Rows without have an empty text, which
// their indexes leave out.
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

package monitor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Storage reports sizes, vacuum and partitions of a database's tables and indexes.
type Storage struct {
	Bytes         int64         `json:"bytes"`
	Tables        []TableSize   `json:"tables"`         // the largest first, partitions counted with their table
	PayloadShare  float64       `json:"payload_share"`  // of the bytes of all tables and indexes
	VacuumStates  []VacuumState `json:"vacuum_states"`  // of tables whose rows change
	BrokenIndexes []BrokenIndex `json:"broken_indexes"` // invalid, or missing in a partition
	FrozenAge     int32         `json:"frozen_age"`     // transactions since the oldest row that was not frozen
	Partitioning  *Partitioning `json:"partitioning"`   // nil in the database of a key store
}

// TableSize is the size of a table on disk. Rows are the planner's estimate, -1 before
// the first ANALYZE.
type TableSize struct {
	Name       string `json:"name"`
	Partitions int32  `json:"partitions"`
	Rows       int64  `json:"rows_estimated"`
	Bytes      int64  `json:"bytes"`
	IndexBytes int64  `json:"index_bytes"`
}

// VacuumState is the state of a table's VACUUM and ANALYZE. Times are zero if they never ran.
type VacuumState struct {
	Name                string    `json:"name"`
	Live                int64     `json:"live_estimated"`
	Dead                int64     `json:"dead_estimated"`
	ChangedSinceAnalyze int64     `json:"changed_since_analyze"`
	VacuumedAt          time.Time `json:"vacuumed_at"`
	AnalyzedAt          time.Time `json:"analyzed_at"`
}

// BrokenIndex is an index that no query may use.
type BrokenIndex struct {
	Name  string `json:"name"`
	Table string `json:"table"`
}

// Partitioning counts the legal entities with tables of their own.
type Partitioning struct {
	Physical       int      `json:"physical"`        // legal entities with tables of their own
	Wanted         int      `json:"wanted"`          // database.physical_partitions
	Shared         int      `json:"shared"`          // legal entities in the default partition
	SharedEvents   int64    `json:"shared_events"`   // their events
	Unattached     []string `json:"unattached"`      // tables that are not part of the log
	WithoutPayload []string `json:"without_payload"` // tables of events that have none for payloads, and the other way round
}

const (
	deadWarn               = 10_000 // rows, and more than half as many as live ones
	unanalyzedWarn         = 100_000
	frozenWarn, frozenFail = 1_000_000_000, 1_800_000_000
)

// Storage reads the catalog. physicalPartitions is the setting. Fault
// store.question_too_slow.
func (m *Monitor) Storage(ctx context.Context, physicalPartitions int) (Storage, error) {
	out := Storage{Tables: []TableSize{}, VacuumStates: []VacuumState{}, BrokenIndexes: []BrokenIndex{}}
	counters, err := m.queries.GetDatabaseCounters(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	out.Bytes, out.FrozenAge = counters.Bytes, counters.FrozenAge
	sizes, err := m.queries.ListTableSizes(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	var all, payloads int64
	for _, s := range sizes {
		out.Tables = append(out.Tables, TableSize{Name: s.Name, Partitions: s.Parts, Rows: s.RowsEstimated, Bytes: s.TableBytes, IndexBytes: s.IndexBytes})
		all += s.TableBytes + s.IndexBytes
		if s.Name == "backbone.event_payloads" {
			payloads = s.TableBytes + s.IndexBytes
		}
	}
	if all > 0 {
		out.PayloadShare = float64(payloads) / float64(all)
	}
	vacuums, err := m.queries.ListVacuumStates(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, v := range vacuums {
		out.VacuumStates = append(out.VacuumStates, VacuumState{
			Name: v.Name, Live: v.Live, Dead: v.Dead, ChangedSinceAnalyze: v.ChangedSinceAnalyze,
			VacuumedAt: stampOf(v.VacuumedAt), AnalyzedAt: stampOf(v.AnalyzedAt),
		})
	}
	broken, err := m.queries.ListBrokenIndexes(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, b := range broken {
		out.BrokenIndexes = append(out.BrokenIndexes, BrokenIndex{Name: b.Name, Table: b.TableName})
	}
	if m.hasLog {
		out.Partitioning, err = m.partitioning(ctx, physicalPartitions)
	}
	return out, err
}

// stampOf converts a time from a query, where 1970 means none.
func stampOf(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

func (m *Monitor) partitioning(ctx context.Context, wanted int) (*Partitioning, error) {
	out := &Partitioning{Wanted: wanted, Unattached: []string{}, WithoutPayload: []string{}}
	tables, err := m.queries.ListPartitionTables(ctx, m.conn)
	if err != nil {
		return nil, monitorFault(ctx, err)
	}
	attached := map[string]bool{}
	for _, t := range tables {
		if attached[t.Name] = t.Attached; !t.Attached {
			out.Unattached = append(out.Unattached, "backbone."+t.Name)
		}
	}
	entities, err := m.heads(ctx, "", "")
	if err != nil {
		return nil, err
	}
	for _, e := range entities {
		id := strconv.Itoa(int(e.PartitionID))
		events, payloads := attached["events_p"+id], attached["event_payloads_p"+id]
		switch {
		case events != payloads:
			out.WithoutPayload = append(out.WithoutPayload, e.Code)
		case events:
			out.Physical++
		default:
			out.Shared++
			out.SharedEvents += int64(e.head.Sequence)
		}
	}
	return out, nil
}

// Findings judges partitions, indexes and vacuum.
func (s Storage) Findings() []Finding {
	var out []Finding
	if p := s.Partitioning; p != nil {
		out = append(out, p.judge(), p.judgeTables())
	}
	names := make([]string, len(s.BrokenIndexes))
	for i, b := range s.BrokenIndexes {
		names[i] = b.Name
	}
	indexes := newFinding("storage", "indexes", float64(len(names)), 1, 0)
	if len(names) == 0 {
		out = append(out, indexes.with("", "all are valid"))
	} else {
		out = append(out, indexes.with("rebuild them: REINDEX INDEX CONCURRENTLY; an index of a partitioned table is valid once each partition has it",
			"no query may use %s", strings.Join(names, ", ")))
	}
	out = append(out, s.judgeVacuum(), s.judgeAnalyze())
	return append(out, newFinding("storage", "transaction ids", float64(s.FrozenAge), frozenWarn, frozenFail).with(
		"run VACUUM (FREEZE) as the owner and see that autovacuum is on: at 2,000,000,000 PostgreSQL stops writing",
		"the oldest row that is not frozen is %d transactions old", s.FrozenAge))
}

func (p *Partitioning) judge() Finding {
	f := newFinding("storage", "partitions", 0, 0, 0)
	switch {
	case p.Wanted > 0 && p.SharedEvents > 0 && p.Physical < p.Wanted:
		f.Status = FindingWarn
		return f.with("nothing has to be done soon: the default partition holds events, so new legal entities share it whatever database.physical_partitions says",
			"%d legal entities have tables of their own, %d were wanted; %d share the default partition with %d events", p.Physical, p.Wanted, p.Shared, p.SharedEvents)
	case p.Physical > p.Wanted:
		return f.with("", "%d legal entities have tables of their own, more than the setting %d; %d share the default partition with %d events",
			p.Physical, p.Wanted, p.Shared, p.SharedEvents)
	default:
		return f.with("", "%d of %d legal entities have tables of their own; %d share the default partition with %d events", p.Physical, p.Wanted, p.Shared, p.SharedEvents)
	}
}

func (p *Partitioning) judgeTables() Finding {
	f := newFinding("storage", "partition tables", float64(len(p.Unattached)), 1, 0)
	if len(p.WithoutPayload) > 0 {
		f.Status = FindingFail
		return f.with("restore the database: a table of the log was taken out of it",
			"events or payloads have lost the table of legal entity %s", strings.Join(p.WithoutPayload, ", "))
	}
	if len(p.Unattached) > 0 {
		return f.with("find out who detached or made them before anything is dropped: events in them are not read", "not part of the log: %s", strings.Join(p.Unattached, ", "))
	}
	return f.with("", "all are attached")
}

func (s Storage) judgeVacuum() Finding {
	worst := slices.MaxFunc(append([]VacuumState{{}}, s.VacuumStates...), func(a, b VacuumState) int { return int(a.Dead - b.Dead) })
	f := newFinding("storage", "dead rows", 0, 0, 0)
	if worst.Dead > deadWarn && worst.Dead > worst.Live/2 {
		f.Status = FindingWarn
	}
	if worst.Dead == 0 {
		return f.with("", "none")
	}
	cleaned := "never vacuumed"
	if !worst.VacuumedAt.IsZero() {
		cleaned = "last vacuumed at " + worst.VacuumedAt.Format(time.RFC3339)
	}
	return f.with("end the oldest snapshot (section contention), then VACUUM the table as the owner; see that autovacuum is on",
		"most in %s: %d beside %d live ones, %s", worst.Name, worst.Dead, worst.Live, cleaned)
}

func (s Storage) judgeAnalyze() Finding {
	var stale []string
	for _, v := range s.VacuumStates {
		if v.AnalyzedAt.IsZero() && v.ChangedSinceAnalyze > unanalyzedWarn {
			stale = append(stale, v.Name)
		}
	}
	f := newFinding("storage", "statistics", float64(len(stale)), 1, 0)
	if len(stale) == 0 {
		return f.with("", "the planner knows the tables that change")
	}
	return f.with("run ANALYZE as the owner and see that autovacuum is on", "never analyzed: %s", strings.Join(stale, ", "))
}

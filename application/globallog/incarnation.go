package globallog

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// IncarnationsConfig is what Incarnations need; all of it is required.
type IncarnationsConfig struct {
	Log interface {
		Log
		Checkpoints
	}
	Entities interface {
		Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	}
	// Append appends an event to a log unless its stream exists, and says nothing if it does.
	Append  func(ctx context.Context, le ports.LegalEntity, d event.Draft) error
	Signers func(origin string) ports.NoteSigner
	Opener  ports.CheckpointOpener
	Exports ports.ExportStore
	LogName string
}

// Incarnations begin a new life of the global log after a restore from a backup.
type Incarnations struct{ IncarnationsConfig }

// Incarnation is a new life of the global log.
type Incarnation struct {
	Number int    `json:"incarnation"`
	Common uint64 `json:"common_size"` // events of the last signed checkpoint that the log still has; 0: none
	Lost   uint64 `json:"lost_size"`   // events of the newest one, which it has not
	Size   uint64 `json:"size"`        // events that the first checkpoint of the new one has
	Logs   int    `json:"logs"`        // in each of which an event says so
}

// Begin begins a new incarnation: an event in each log says so, and the log is signed under the next origin. It refuses
// while the log has each checkpoint that is known, unless it is forced: events that were signed after the newest export
// may be lost all the same. It may be repeated after a failure. No node may run: they would refuse to sign until it is
// done. Faults: global_log.not_restored (FailedPrecondition), those of the stores, the appender and the signer.
func (s *Incarnations) Begin(ctx context.Context, reason string, isForced bool, progress func(done, total int)) (Incarnation, error) {
	newest, number, err := s.newest(ctx)
	if err != nil {
		return Incarnation{}, err
	}
	size, err := s.Log.GlobalSize(ctx)
	if err != nil {
		return Incarnation{}, err
	}
	isForged := newest != nil && number > newest.Incarnation || newest == nil && number > 0
	if !isForged && (newest == nil || !isForced && s.has(ctx, size, *newest)) {
		return Incarnation{}, fault.New(fault.FailedPrecondition, "global_log.not_restored", "the log has every checkpoint that is known. If the restore lost events that were signed after the newest one, begin with --force; else start the servers")
	}
	begun := Incarnation{Number: number + 1}
	if newest != nil {
		begun.Lost = newest.Size
	}
	common, err := s.lastCommon(ctx, size)
	if err != nil {
		return Incarnation{}, err
	}
	data := restored{Incarnation: begun.Number, Reason: reason, LostSize: begun.Lost}
	if common != nil {
		begun.Common, data.CommonSize, data.CommonRoot = common.Size, common.Size, hex.EncodeToString(common.Root[:])
	}
	if begun.Logs, err = s.announce(ctx, data, progress); err != nil {
		return Incarnation{}, err
	}
	begun.Size, err = s.signFirst(ctx, begun.Number)
	return begun, err
}

// newest is the newest checkpoint that the log signed, in the database or in the export store; nil: none. number is the
// newest incarnation, also of a checkpoint in the database that the log did not sign.
func (s *Incarnations) newest(ctx context.Context) (newest *ports.SignedCheckpoint, number int, err error) {
	recorded, err := s.Log.NewestCheckpoint(ctx)
	if err != nil {
		return nil, 0, err
	}
	exported, err := NewestExport(ctx, s.Exports)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range []*ports.SignedCheckpoint{recorded, exported} {
		if c == nil {
			continue
		}
		number = max(number, c.Incarnation)
		err := requireSigned(ctx, *c, s.LogName, s.Signers, s.Opener)
		if err != nil && fault.CodeOf(err) != "global_log.checkpoint_forged" {
			return nil, 0, err
		}
		if err == nil && (newest == nil || c.IsNewer(*newest)) {
			newest = c
		}
	}
	return newest, number, nil
}

// has reports whether a log of a size has a checkpoint. One that cannot be read it has not.
func (s *Incarnations) has(ctx context.Context, size uint64, c ports.SignedCheckpoint) bool {
	if c.Size > size {
		return false
	}
	root, err := globallog.Root(c.Size, hashesOf(ctx, s.Log))
	return err == nil && root == c.Root
}

// lastCommon is the newest checkpoint that the log still has, of the export store and the newest of the database; nil:
// none.
func (s *Incarnations) lastCommon(ctx context.Context, size uint64) (*ports.SignedCheckpoint, error) {
	isCommon := func(c ports.SignedCheckpoint) bool {
		return s.has(ctx, size, c) && requireSigned(ctx, c, s.LogName, s.Signers, s.Opener) == nil
	}
	recorded, err := s.Log.NewestCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	if recorded != nil && !isCommon(*recorded) {
		recorded = nil
	}
	names, err := s.Exports.List(ctx, CheckpointFolder)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(names) {
		note, err := s.Exports.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		c, err := ParseSigned(note)
		if err != nil {
			continue
		}
		if recorded != nil && !c.IsNewer(*recorded) {
			break
		}
		if isCommon(c) {
			return &c, nil
		}
	}
	return recorded, nil
}

// announce appends the event of the new incarnation to every log.
func (s *Incarnations) announce(ctx context.Context, data restored, progress func(done, total int)) (logs int, err error) {
	entities, err := s.Entities.Partitions(ctx, "")
	if err != nil {
		return 0, err
	}
	now := time.Now()
	for i, le := range entities {
		progress(i, len(entities))
		stream := event.StreamID{Type: streamType, ID: strconv.Itoa(data.Incarnation)}
		err := s.Append(ctx, le, event.Draft{
			Type: LogRestored, SchemaVersion: 1, OccurredAt: event.Micros(now), EffectiveDate: le.Today(now), Stream: stream, CorrelationID: stream.Type + "-" + stream.ID,
			Data: data, Source: event.Source{System: "backbone", Channel: "restore"},
		})
		if err != nil {
			return i, err
		}
	}
	return len(entities), nil
}

// signFirst takes all events into the global log and signs it.
func (s *Incarnations) signFirst(ctx context.Context, incarnation int) (size uint64, err error) {
	entities, err := s.Entities.Partitions(ctx, "")
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(entities, maxPartitions) {
		var partitions []event.PartitionID
		for _, le := range batch {
			partitions = append(partitions, le.Partition)
		}
		for more := true; more; {
			ranges, err := s.Log.ExtendGlobalLog(ctx, partitions, maxEvents/len(partitions))
			if err != nil {
				return 0, err
			}
			more = len(ranges) > 0
		}
	}
	if size, err = s.Log.GlobalSize(ctx); err != nil {
		return 0, err
	}
	c := globallog.Checkpoint{Origin: globallog.Origin(s.LogName, incarnation), Size: size}
	if c.Root, err = globallog.Root(size, hashesOf(ctx, s.Log)); err != nil {
		return 0, err
	}
	note, err := s.Signers(c.Origin).SignNote(ctx, c.Text())
	if err != nil {
		return 0, err
	}
	if _, err := s.Log.RecordCheckpoint(ctx, ports.SignedCheckpoint{Incarnation: incarnation, Size: size, Root: c.Root, Note: note}); err != nil {
		return 0, err
	}
	return size, s.Exports.PutIfAbsent(ctx, CheckpointName(incarnation, size), note)
}

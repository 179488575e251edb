package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// keptBytes bounds the payloads that Files keeps in memory: a reader of a log in order reads each file once.
const keptBytes = 64 << 20

// Files reads the files of the archive. It keeps those that were read last.
type Files struct {
	store   ports.ExportStore
	metrics Metrics

	mu   sync.Mutex
	kept []keptSegment // the one that was read last comes first
}

var _ ports.ArchivedPayloads = (*Files)(nil)

type keptSegment struct {
	digest  event.Hash // of the file
	records []archive.Record
	bytes   int
	readAt  time.Time
}

// Metrics counts the files that readers need.
type Metrics interface {
	// ArchiveRead counts one: read, kept (in memory), unavailable, missing or damaged.
	ArchiveRead(outcome string)
}

// NewFiles makes Files over the store of the archive.
func NewFiles(store ports.ExportStore, metrics Metrics) *Files {
	return &Files{store: store, metrics: metrics}
}

// Records implements ports.ArchivedPayloads.
func (f *Files) Records(ctx context.Context, s ports.ArchivedSegment) ([]archive.Record, error) {
	if records, found := f.keptRecords(s, time.Time{}); found {
		f.metrics.ArchiveRead("kept")
		return records, nil
	}
	records, err := f.read(ctx, s)
	if fault.CodeOf(err) == archive.CodeObjectMissing {
		return f.readSpare(ctx, s)
	}
	return records, err
}

// freshFor is how long verification trusts what was read: pages of a log have the same file after one another.
const freshFor = 5 * time.Second

// FreshRecords implements ports.ArchivedPayloads.
func (f *Files) FreshRecords(ctx context.Context, s ports.ArchivedSegment) ([]archive.Record, error) {
	if records, found := f.keptRecords(s, time.Now().Add(-freshFor)); found {
		f.metrics.ArchiveRead("kept")
		return records, nil
	}
	return f.read(ctx, s)
}

// read reads a segment from its file, and keeps it. Of an archive without any file of the partition, which is probably
// another one, the fault is archive.unavailable.
func (f *Files) read(ctx context.Context, s ports.ArchivedSegment) ([]archive.Record, error) {
	records, err := f.readFile(ctx, s)
	switch code := fault.CodeOf(err); {
	case err == nil:
		f.metrics.ArchiveRead("read")
	case code == archive.CodeObjectMissing:
		f.metrics.ArchiveRead("missing")
	case code == archive.CodeObjectDamaged:
		f.metrics.ArchiveRead("damaged")
	case code != "": // else the caller has left
		f.metrics.ArchiveRead("unavailable")
	}
	return records, err
}

func (f *Files) readFile(ctx context.Context, s ports.ArchivedSegment) ([]archive.Record, error) {
	object, err := f.store.Get(ctx, s.Object)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		names, err := f.store.List(ctx, archive.Folder(s.Partition))
		if err != nil {
			return nil, archive.Unavailable().WithCause(err)
		}
		if len(names) == 0 {
			return nil, archive.Empty()
		}
		return nil, archive.ObjectMissing()
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case fault.KindOf(err) == fault.TooLarge:
		return nil, archive.ObjectDamaged().WithCause(err)
	case err != nil:
		return nil, archive.Unavailable().WithCause(err)
	}
	records, err := archive.Decode(object, s.Digest)
	if err != nil {
		return nil, err
	}
	bytes := 0
	for i := range records {
		bytes += records[i].LineBytes()
	}
	f.keep(keptSegment{s.Digest, records, bytes, time.Now()})
	return records, nil
}

// readSpare reads the other files of the range of a segment whose own is missing: after a redaction, a database that was
// restored to a time before it finds the other payloads there.
func (f *Files) readSpare(ctx context.Context, s ports.ArchivedSegment) ([]archive.Record, error) {
	names, err := f.store.List(ctx, archive.Folder(s.Partition))
	if err != nil {
		return nil, archive.Unavailable().WithCause(err)
	}
	var found []archive.Record // of all files of the range: they may lack different ones
	hasSpare := false
	for _, name := range names {
		if first, last, ok := archive.ObjectRange(name); !ok || first != s.First || last != s.Last {
			continue
		}
		object, err := f.store.Get(ctx, name)
		if err != nil {
			return nil, archive.Unavailable().WithCause(err)
		}
		if records, err := archive.Decode(object, sha256.Sum256(object)); err == nil {
			found, hasSpare = append(found, records...), true
		}
	}
	if !hasSpare {
		return nil, archive.ObjectMissing()
	}
	// Only what the skeletons vouch for by themselves: nothing else vouches for the files.
	found = slices.DeleteFunc(found, func(r archive.Record) bool { return len(r.Redactions) > 0 })
	slices.SortStableFunc(found, func(a, b archive.Record) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return slices.CompactFunc(found, func(a, b archive.Record) bool { return a.Sequence == b.Sequence }), nil
}

func (f *Files) keptRecords(s ports.ArchivedSegment, since time.Time) ([]archive.Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.kept, func(k keptSegment) bool { return k.digest == s.Digest && !k.readAt.Before(since) })
	if i < 0 {
		return nil, false
	}
	k := f.kept[i]
	f.kept = slices.Insert(slices.Delete(f.kept, i, i+1), 0, k)
	return k.records, true
}

func (f *Files) keep(k keptSegment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = slices.DeleteFunc(f.kept, func(o keptSegment) bool { return o.digest == k.digest })
	f.kept = slices.Insert(f.kept, 0, k)
	total := 0
	for i, o := range f.kept {
		if total += o.bytes; total > keptBytes && i > 0 {
			clear(f.kept[i:])
			f.kept = f.kept[:i]
			return
		}
	}
}

package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Forget brings the payload of an event that is about to be redacted back into the database, with those of its segment,
// and removes it from every file and state. The request for its redaction is approved, so that it is not archived again before.
// Forget may be repeated.
func (a *Archiver) Forget(ctx context.Context, le ports.LegalEntity, n event.Sequence) error {
	l, err := a.take(ctx, le)
	if err != nil {
		return err
	}
	defer l.release(ctx)
	if err := a.forgetStates(ctx, le, n); err != nil {
		return err
	}
	for s, err := range a.segments(ctx, le.Partition) {
		if err != nil {
			return err
		}
		if s.First > n {
			break
		}
		if s.Last >= n {
			if err := a.restore(ctx, le, s, "A payload is redacted."); err != nil {
				return err
			}
		}
	}
	return a.removeFromFiles(ctx, l, le.Partition, []event.Sequence{n}, func(r archive.Record) bool { return r.Sequence == n })
}

// forgetStates removes the states that may have values of an event. The others of their pages stay.
func (a *Archiver) forgetStates(ctx context.Context, le ports.LegalEntity, n event.Sequence) error {
	keys, err := a.stateKeys(ctx, le.Partition, n)
	if err != nil {
		return err
	}
	pages, err := a.Register.StatePages(ctx, le.Partition, keys)
	if err != nil {
		return err
	}
	for _, page := range pages {
		states, err := a.States.Unpack(ctx, le, page)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(states), func(s archive.State) bool { return slices.Contains(keys, s.Key) })
		if len(left) > 0 && len(left) == len(states) {
			continue
		}
		by, err := a.States.Pages(ctx, le, page.Segment, left)
		if err != nil {
			return err
		}
		if err := a.Payloads.ReplaceStates(ctx, page, by); err != nil {
			return err
		}
	}
	return nil
}

// stateKeys are the keys of the states that may have values of an event.
func (a *Archiver) stateKeys(ctx context.Context, p event.PartitionID, n event.Sequence) ([]string, error) {
	page, err := a.Log.ChainPage(ctx, p, n-1, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	keys := []string{archive.StreamKey(page[0].Stream)}
	body, err := page[0].Body()
	if err != nil {
		return nil, err
	}
	for _, ref := range body.EntityRefs {
		keys = append(keys, ref.Key())
	}
	return keys, nil
}

// removeFromFiles removes records from the files of a partition whose ranges have one of the sequences. A file with such a
// record is replaced by a spare: a file of the same range without it, for a database that is restored to a time when the
// segment was archived. Fault archive.busy if the lease is lost.
func (a *Archiver) removeFromFiles(ctx context.Context, l *lease, p event.PartitionID, of []event.Sequence, isRemoved func(archive.Record) bool) error {
	names, err := a.Store.List(ctx, archive.Folder(p))
	if err != nil {
		return err
	}
	for _, name := range names {
		first, last, ok := archive.ObjectRange(name)
		if !ok || !slices.ContainsFunc(of, func(n event.Sequence) bool { return first <= n && n <= last }) {
			continue
		}
		object, err := a.Store.Get(ctx, name)
		if err != nil {
			return err
		}
		// A file that cannot be read is not deleted: it may be all that is left.
		records, err := archive.Decode(object, sha256.Sum256(object))
		if err != nil {
			a.Logger.WarnContext(ctx, "a file of the archive may have a payload that is redacted, and cannot be read; put it back from a copy, or delete it", "object", name)
			return err
		}
		left := slices.DeleteFunc(slices.Clone(records), isRemoved)
		if len(left) == len(records) {
			continue
		}
		if err := l.renew(ctx); err != nil {
			return err
		}
		if live, err := a.isLive(ctx, p, name); err != nil || live {
			return cmp.Or(err, error(archive.Busy())) // the next attempt restores it
		}
		if err := a.replaceFile(ctx, p, name, first, last, left); err != nil {
			return err
		}
	}
	return nil
}

// isLive reports whether a segment has a file.
func (a *Archiver) isLive(ctx context.Context, p event.PartitionID, object string) (bool, error) {
	for s, err := range a.segments(ctx, p) {
		if err != nil || s.Object == object {
			return err == nil, err
		}
	}
	return false, nil
}

// replaceFile replaces a file by a spare with some of its records.
func (a *Archiver) replaceFile(ctx context.Context, p event.PartitionID, name string, first, last event.Sequence, left []archive.Record) error {
	if len(left) > 0 {
		spare, m, err := archive.Encode(p, first, last, left)
		if err != nil {
			return err
		}
		if err := a.Store.PutIfAbsent(ctx, m.Object, spare); err != nil {
			return err
		}
	}
	if err := a.Store.Delete(ctx, name); err != nil {
		return err
	}
	a.Logger.InfoContext(ctx, "a file of the archive was replaced, since a payload of it is redacted", "object", name)
	return nil
}

// sweep removes payloads as they were before their redaction from files that a run has left behind when it was killed.
func (a *Archiver) sweep(ctx context.Context, l *lease, le ports.LegalEntity) error {
	redactions, err := a.Log.Redactions(ctx, le.Partition)
	if err != nil || len(redactions) == 0 {
		return err
	}
	var redacted []event.Sequence
	replaced := map[event.Hash]bool{} // payloads that a redaction has replaced
	for _, r := range redactions {
		redacted, replaced[r.OldPayloadHash] = append(redacted, r.Sequence), true
	}
	return a.removeFromFiles(ctx, l, le.Partition, redacted, func(r archive.Record) bool { return replaced[r.Hash()] })
}

package verify

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// payloadsArchived is the type of the events that have the manifests of segments.
const payloadsArchived = "backbone.payloads.archived"

// payloadsRestored is the type of the events that say that a segment came back.
const payloadsRestored = "backbone.payloads.restored"

// rangeID is the id of the stream of a range.
func rangeID(first, last event.Sequence) string {
	return fmt.Sprintf("%d-%d", uint64(first), uint64(last))
}

// maxLost bounds the events in memory whose files are missing or damaged.
const maxLost = 100_000

// segmentPage is how many segments are read at once.
const segmentPage = 1000

// checkSegments compares the segments of the archive with their manifests, and reports each whose file does not have what
// the log vouches for.
func (c *chain) checkSegments(ctx context.Context, store Store) error {
	for after := event.Sequence(0); ; {
		page, err := store.Segments(ctx, c.entity.Partition, after, segmentPage)
		if err != nil {
			return err
		}
		for _, s := range page {
			after = s.First
			if err := c.checkSegment(ctx, store, s); err != nil {
				return err
			}
		}
		if len(page) < segmentPage {
			return nil
		}
	}
}

func (c *chain) checkSegment(ctx context.Context, store Store, s ports.ArchivedSegment) error {
	manifest, err := readManifest(ctx, store, s)
	if err != nil {
		return err
	}
	isEmpty := false
	if c.restored[rangeID(s.First, s.Last)] > s.Event { // or is about to be
		if isEmpty, err = hasNoArchived(ctx, store, s); err != nil {
			return err
		}
	}
	switch {
	case isEmpty:
		c.add(ArchiveMismatch, s.First, fmt.Sprintf("the archived segment %d to %d was restored", s.First, s.Last))
	case manifest == nil:
		c.add(ArchiveMismatch, s.First, fmt.Sprintf("no event has the manifest of the archived segment %d to %d", s.First, s.Last))
	case manifest.First != s.First || manifest.Last != s.Last || manifest.Records != s.Records || manifest.Object != s.Object || manifest.Digest != hex.EncodeToString(s.Digest[:]):
		c.add(ArchiveMismatch, s.First, fmt.Sprintf("the archived segment %d to %d is not the one of its manifest", s.First, s.Last))
	}
	for _, n := range c.lost {
		if s.First <= n && n <= s.Last {
			c.add(ArchiveDamaged, n, fmt.Sprintf("the file %s of the archive is missing or was changed; put it back from a copy of the archive", s.Object))
			break
		}
	}
	return nil
}

// hasNoArchived reports whether all payloads of a segment's range are in the database.
func hasNoArchived(ctx context.Context, store Store, s ports.ArchivedSegment) (bool, error) {
	for after := s.First - 1; after < s.Last; {
		page, err := store.ChainPage(ctx, s.Partition, after, int(min(pageSize, s.Last-after)))
		if err != nil || len(page) == 0 {
			return err == nil, err
		}
		for i := range page {
			if page[i].Archived || page[i].Payload == nil {
				return false, nil
			}
		}
		after = page[len(page)-1].Sequence
	}
	return true, nil
}

// readManifest reads the manifest that a segment refers to; nil if there is none.
func readManifest(ctx context.Context, store Store, s ports.ArchivedSegment) (*archive.Manifest, error) {
	if s.Event == 0 {
		return nil, nil
	}
	found, err := store.ChainPage(ctx, s.Partition, s.Event-1, 1)
	if err != nil || len(found) == 0 || found[0].Sequence != s.Event || found[0].Type != payloadsArchived || found[0].Payload == nil {
		return nil, err
	}
	var m archive.Manifest
	if !decodeData(&found[0], &m) {
		return nil, nil
	}
	return &m, nil
}

package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/paper"
)

// papers compares the sealed bytes of papers with the events that name them. It needs no key, so it
// holds after erasures too. Bytes are stored before their event, so those of a noted event are there;
// bytes that no event names are read by nothing and swept.
type papers map[event.Hash]keptPaper // by the digest of the sealed bytes

type keptPaper struct {
	id       string
	sequence event.Sequence
}

func (p papers) note(c *chain, e *event.Recorded) {
	if e.Type != paper.Kept && e.Type != paper.Retained {
		return
	}
	var data paper.Data
	digest, err := []byte(nil), error(nil)
	if decodeData(e, &data) {
		digest, err = hex.DecodeString(data.ContentSHA256)
	}
	if err != nil || len(digest) != len(event.Hash{}) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a paper cannot be read")
		return
	}
	p[event.Hash(digest)] = keptPaper{e.Stream.ID, e.Sequence}
}

func (p papers) compare(ctx context.Context, c *chain, store Store) error {
	if len(p) == 0 {
		return nil
	}
	missing := maps.Clone(p)
	for row, err := range store.PaperContents(ctx, c.entity.Partition) {
		if err != nil {
			return err
		}
		digest := event.Hash(sha256.Sum256(row.Sealed))
		if digest == row.SHA256 && p[digest].id == row.PaperID { // it is read by the one, and swept by the other
			delete(missing, digest)
		}
	}
	for _, kept := range slices.SortedFunc(maps.Values(missing), func(a, b keptPaper) int { return int(a.sequence) - int(b.sequence) }) {
		c.add(PaperMismatch, kept.sequence, fmt.Sprintf("the sealed bytes of paper %s are missing, or not as they were stored", kept.id))
	}
	return nil
}

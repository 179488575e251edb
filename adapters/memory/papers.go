package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/ports"
)

// Papers stores the sealed bytes of papers.
type Papers struct{ *state }

var (
	_ ports.Papers     = (*Papers)(nil)
	_ ports.PaperAudit = (*Papers)(nil)
)

type paperKey struct {
	partition event.PartitionID
	digest    event.Hash
}

type storedPaper struct {
	ports.PaperContent

	storedAt time.Time
}

// AddPaper implements ports.Papers.
func (s *Papers) AddPaper(ctx context.Context, p event.PartitionID, c ports.PaperContent) error {
	return s.do(ctx, func() error {
		if c.SHA256 != sha256.Sum256(c.Sealed) {
			return errors.New("the digest is not that of the bytes")
		}
		k := paperKey{p, c.SHA256}
		if _, known := s.papers[k]; !known {
			c.Sealed = slices.Clone(c.Sealed)
			s.papers[k] = storedPaper{c, s.clock.Now()}
		}
		return nil
	})
}

// PaperContent implements ports.Papers.
func (s *Papers) PaperContent(ctx context.Context, p event.PartitionID, digest event.Hash) (ports.PaperContent, error) {
	return get(ctx, s.state, func() (ports.PaperContent, error) {
		stored, known := s.papers[paperKey{p, digest}]
		if !known {
			return ports.PaperContent{}, paper.ContentMissing()
		}
		return stored.PaperContent, nil
	})
}

// SweepPapers implements ports.Papers.
func (s *Papers) SweepPapers(ctx context.Context, before time.Time) (deleted int64, err error) {
	return get(ctx, s.state, func() (int64, error) {
		if newest := s.clock.Now().Add(-24 * time.Hour); before.After(newest) {
			before = newest
		}
		for k, stored := range s.papers {
			if stored.storedAt.Before(before) && !s.isNamed(k, stored.PaperID) {
				delete(s.papers, k)
				deleted++
			}
		}
		return deleted, nil
	})
}

// isNamed reports whether an event names the bytes.
func (s *Papers) isNamed(k paperKey, paperID string) bool {
	log := s.partitions[k.partition]
	if log == nil {
		return false
	}
	return slices.ContainsFunc(log.events, func(e event.Recorded) bool {
		if e.Stream != paper.Stream(paperID) {
			return false
		}
		var payload struct {
			Data paper.Data `json:"data"`
		}
		return json.Unmarshal(e.Payload, &payload) != nil || payload.Data.ContentSHA256 == hex.EncodeToString(k.digest[:])
	})
}

// PaperContents implements ports.PaperAudit.
func (s *Papers) PaperContents(ctx context.Context, p event.PartitionID) iter.Seq2[ports.PaperContent, error] {
	return func(yield func(ports.PaperContent, error) bool) {
		all, err := get(ctx, s.state, func() (all []ports.PaperContent, err error) {
			for k, stored := range s.papers {
				if k.partition == p {
					all = append(all, stored.PaperContent)
				}
			}
			return all, nil
		})
		if err != nil {
			yield(ports.PaperContent{}, err)
			return
		}
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
	}
}

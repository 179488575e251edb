package eventlog

import (
	"context"
	"math"
	"slices"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// matchScans is how many pages of a key's entries one call reads for one item. It bounds the
// cost of a call when keys are frequent and events with all of them are rare.
const matchScans = concurrency.MaxConditionScan / searchPage

// coverage is the sequences that match one item: all of them up to through.
type coverage struct {
	sequences []int64
	through   int64
}

// Matches implements ports.MatchReader. It searches each item by its rarest key, else by its
// types, else in the log. The page ends where the first item's coverage ends.
func (s *Reader) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	page := ports.MatchPage{Matches: []ports.Match{}, Through: max(q.After, q.Until)}
	if q.After >= q.Until {
		return page, nil
	}
	limit := max(q.Limit, 1)
	covered := span{int64(q.After), int64(q.Until)}
	places := map[int64][]int{}
	for i := range q.Items {
		c, err := s.cover(ctx, q.Partition, &q.Items[i], covered, limit+1)
		if err != nil {
			return ports.MatchPage{}, pg.Translate(ctx, err)
		}
		covered.until = c.through
		for _, n := range c.sequences {
			places[n] = append(places[n], i)
		}
	}
	sequences := make([]int64, 0, len(places))
	for n := range places {
		if n <= covered.until {
			sequences = append(sequences, n)
		}
	}
	slices.Sort(sequences)
	if len(sequences) > limit {
		sequences, covered.until = sequences[:limit], sequences[limit-1]
	}
	events, cut, err := s.fetchWithin(ctx, q.Partition, "", sequences, !q.WithoutData, q.Bytes)
	if err != nil {
		return ports.MatchPage{}, err
	}
	if cut {
		covered.until = int64(events[len(events)-1].Sequence)
	}
	for _, e := range events {
		page.Matches = append(page.Matches, ports.Match{Event: e, Items: places[int64(e.Sequence)]})
	}
	page.Through = event.Sequence(covered.until)
	return page, nil
}

// cover finds up to limit sequences that match an item.
func (s *Reader) cover(ctx context.Context, p event.PartitionID, item *concurrency.Item, b span, limit int) (coverage, error) {
	keys := item.Keys()
	types := item.Types
	if types == nil {
		types = []string{}
	}
	switch {
	case len(keys) > 0:
		return s.coverKeys(ctx, p, keys, types, b, limit)
	case len(types) > 0:
		found, err := s.queries.ListTypeMatches(ctx, s.db.Reads, &eventlogdb.ListTypeMatchesParams{
			Types: distinct(types), PartitionID: int32(p), After: b.after, Until: b.until, PageSize: pg.PageSize(limit),
		})
		return coveredBy(found, b, limit), err
	default: // every event, and sequences have no gaps
		var found []int64
		for n := b.after + 1; n <= b.until && len(found) < limit; n++ {
			found = append(found, n)
		}
		return coveredBy(found, b, limit), nil
	}
}

// distinct sorts texts and drops duplicates: a type that is listed twice would be found twice.
func distinct(texts []string) []string {
	out := slices.Clone(texts)
	slices.Sort(out)
	return slices.Compact(out)
}

// coveredBy is the coverage of a search that stopped at the limit or at the end.
func coveredBy(found []int64, b span, limit int) coverage {
	if len(found) < limit {
		return coverage{found, b.until}
	}
	return coverage{found, found[len(found)-1]}
}

// coverKeys reads the entries of an item's keys page by page, each page from the key that is
// rarest there, and keeps those that have all keys.
func (s *Reader) coverKeys(ctx context.Context, p event.PartitionID, keys, types []string, b span, limit int) (coverage, error) {
	keys = distinct(keys)
	c := coverage{through: b.after}
	for range matchScans {
		leader, ended, err := s.rarest(ctx, p, keys, span{c.through, b.until})
		if err != nil {
			return c, err
		}
		if ended {
			c.through = b.until
			return c, nil
		}
		others := slices.Delete(slices.Clone(keys), leader, leader+1)
		rows, err := s.queries.ListKeyMatches(ctx, s.db.Reads, &eventlogdb.ListKeyMatchesParams{
			PartitionID: int32(p), Key: keys[leader], OtherKeys: others, Types: types, After: c.through, Until: b.until, PageSize: searchPage,
		})
		if err != nil {
			return c, err
		}
		for _, r := range rows {
			if !r.Matches {
				continue
			}
			c.sequences = append(c.sequences, r.Sequence)
			if len(c.sequences) == limit {
				c.through = r.Sequence
				return c, nil
			}
		}
		if len(rows) < searchPage {
			c.through = b.until
			return c, nil
		}
		c.through = rows[len(rows)-1].Sequence
	}
	return c, nil
}

// rarest finds the key whose next page of entries reaches the highest sequence. ended reports
// that one of the keys has no more entries, so no later event matches.
func (s *Reader) rarest(ctx context.Context, p event.PartitionID, keys []string, b span) (leader int, ended bool, err error) {
	if len(keys) == 1 {
		return 0, false, nil
	}
	ordinals := make([]int32, len(keys))
	for i := range ordinals {
		ordinals[i] = int32(i)
	}
	rows, err := s.queries.ListKeySpans(ctx, s.db.Reads, &eventlogdb.ListKeySpansParams{
		PartitionID: int32(p), Ordinals: ordinals, Keys: keys, After: b.after, Until: b.until, PageSize: searchPage,
	})
	if err != nil {
		return 0, false, err
	}
	farthest, fewest := int64(-1), int64(math.MaxInt64)
	for _, r := range rows {
		reach := r.Reach
		if r.Entries == 0 {
			return 0, true, nil
		}
		if r.Entries < searchPage {
			reach = math.MaxInt64 // the key has no entries after this page
		}
		if reach > farthest || reach == farthest && r.Entries < fewest {
			leader, farthest, fewest = int(r.Ordinal), reach, r.Entries
		}
	}
	return leader, false, nil
}

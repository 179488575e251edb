package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// RunBlindIndex checks the store of the index by which persons are found.
func RunBlindIndex(t *testing.T, store ports.BlindIndex) {
	t.Helper()
	const p, other = event.PartitionID(41), event.PartitionID(42)
	ctx := t.Context()
	anna, meyer, mail := blindindex.Hash{1}, blindindex.Hash{2}, blindindex.Hash{3}
	key := blindindex.Hash{9}
	standard, regulatory := []shredding.KeyClass{shredding.KeyStandard}, []shredding.KeyClass{shredding.KeyRegulatory}
	entry := func(in event.PartitionID, kind blindindex.Kind, hash blindindex.Hash, subject shredding.Subject, class shredding.KeyClass) blindindex.Entry {
		return blindindex.Entry{Partition: in, Kind: kind, Hash: hash, Subject: subject, KeyClass: class, Class: shredding.Contact, Type: "hr.hired", Path: "$.name"}
	}
	find := func(q ports.SubjectQuery) (subjects []string) {
		t.Helper()
		found, err := store.FindSubjects(ctx, q)
		require.NoError(t, err)
		for _, e := range found {
			require.Equal(t, []string{"contact", "hr.hired", "$.name"}, []string{string(e.Class), e.Type, e.Path})
			subjects = append(subjects, string(e.Subject))
		}
		return subjects
	}
	position := func() ports.BlindIndexPosition {
		t.Helper()
		all, err := store.BlindIndexPositions(ctx, []event.PartitionID{p})
		require.NoError(t, err)
		return all[p]
	}

	require.Zero(t, position())
	require.Equal(t, blindindex.CodeBehind, fault.CodeOf(store.ForgetSubject(ctx, p, "person:P-1", standard, 0)))
	at, err := store.BeginBlindIndex(ctx, p, ports.BlindIndexPosition{}, key)
	require.NoError(t, err)
	require.Equal(t, ports.BlindIndexPosition{Revision: 1, Key: key}, at)
	_, err = store.BeginBlindIndex(ctx, p, ports.BlindIndexPosition{}, key)
	require.Equal(t, blindindex.CodeMoved, fault.CodeOf(err), "another node has begun it")

	entries := []blindindex.Entry{
		entry(p, blindindex.Name, anna, "person:P-1", shredding.KeyStandard), entry(p, blindindex.Name, meyer, "person:P-1", shredding.KeyStandard),
		entry(p, blindindex.Name, meyer, "person:P-1", shredding.KeyRegulatory),
		entry(p, blindindex.Name, meyer, "person:P-2", shredding.KeyStandard), entry(p, blindindex.Email, mail, "person:P-2", shredding.KeyStandard),
	}
	stale := at
	at, err = store.AdvanceBlindIndex(ctx, p, at, 7, entries)
	require.NoError(t, err)
	require.Equal(t, at, position())
	require.EqualValues(t, 7, at.Sequence)
	_, err = store.AdvanceBlindIndex(ctx, p, stale, 7, []blindindex.Entry{entry(p, blindindex.Email, mail, "person:P-9", shredding.KeyStandard)})
	require.Equal(t, blindindex.CodeMoved, fault.CodeOf(err), "another node was first")
	at, err = store.AdvanceBlindIndex(ctx, p, at, 8, entries)
	require.NoError(t, err, "entries that are there change nothing")
	second, err := store.BeginBlindIndex(ctx, other, ports.BlindIndexPosition{}, key)
	require.NoError(t, err)
	_, err = store.AdvanceBlindIndex(ctx, other, second, 1, []blindindex.Entry{entry(other, blindindex.Name, anna, "person:P-2", shredding.KeyStandard)})
	require.NoError(t, err)

	many := make([]blindindex.Entry, 2500)
	for i := range many {
		many[i] = entry(other, blindindex.Phone, blindindex.Hash{byte(i), byte(i >> 8)}, "person:P-3", shredding.KeyStandard)
	}
	second = testkit.Must(store.BlindIndexPositions(ctx, []event.PartitionID{p, other}))[other]
	require.Len(t, testkit.Must(store.BlindIndexPositions(ctx, []event.PartitionID{other})), 1)
	_, err = store.AdvanceBlindIndex(ctx, other, second, 2, many)
	require.NoError(t, err)
	n, err := store.CountBlindIndex(ctx, other, "person:P-3", standard)
	require.NoError(t, err)
	require.EqualValues(t, len(many), n)

	in := []event.PartitionID{p}
	require.Equal(t, []string{"person:P-1", "person:P-2"}, find(ports.SubjectQuery{Partitions: in, Kind: blindindex.Name, Hashes: []blindindex.Hash{meyer}, Limit: 10}))
	require.Equal(t, []string{"person:P-1"}, find(ports.SubjectQuery{Partitions: in, Kind: blindindex.Name, Hashes: []blindindex.Hash{meyer}, Limit: 1}))
	require.Equal(t, []string{"person:P-2"}, find(ports.SubjectQuery{Partitions: in, Kind: blindindex.Name, Hashes: []blindindex.Hash{meyer}, After: "person:P-1", Limit: 10}))
	require.Equal(t, []string{"person:P-1"}, find(ports.SubjectQuery{Partitions: in, Kind: blindindex.Name, Hashes: []blindindex.Hash{anna, meyer}, Limit: 10}))
	require.Equal(t, []string{"person:P-1", "person:P-2", "person:P-2"},
		find(ports.SubjectQuery{Partitions: []event.PartitionID{p, other}, Kind: blindindex.Name, Hashes: []blindindex.Hash{anna, meyer}, Limit: 10}), "one person in two legal entities")
	require.Empty(t, find(ports.SubjectQuery{Partitions: in, Kind: blindindex.Email, Hashes: []blindindex.Hash{anna}, Limit: 10}), "of another kind")

	require.Equal(t, blindindex.CodeBehind, fault.CodeOf(store.ForgetSubject(ctx, p, "person:P-1", standard, 9)))
	n, err = store.CountBlindIndex(ctx, p, "person:P-1", standard)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.NoError(t, store.ForgetSubject(ctx, p, "person:P-1", standard, 8))
	n, err = store.CountBlindIndex(ctx, p, "person:P-1", standard)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = store.CountBlindIndex(ctx, p, "person:P-1", regulatory)
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "the class that is kept")
	_, err = store.AdvanceBlindIndex(ctx, p, at, 9, entries)
	require.Equal(t, blindindex.CodeMoved, fault.CodeOf(err), "values that were opened before the person was forgotten come too late")

	require.NoError(t, store.ClearBlindIndex(ctx))
	require.Empty(t, find(ports.SubjectQuery{Partitions: []event.PartitionID{p, other}, Kind: blindindex.Name, Hashes: []blindindex.Hash{meyer}, Limit: 10}))
	cleared := position()
	require.Zero(t, cleared.Sequence)
	require.Zero(t, cleared.Key)
	require.Greater(t, cleared.Revision, at.Revision)
	again, err := store.BeginBlindIndex(ctx, p, cleared, key)
	require.NoError(t, err)
	require.Equal(t, key, again.Key)
}

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

// judgement is what a drill has left behind, held to the rules of the simulation.
type judgement struct {
	rules      oracle.Require
	books      oracle.Books
	partitions map[string]domain.PartitionID // by legal entity
}

// judge reads a database past every server, and requires of its logs and intents what the simulation
// requires of its stores in memory. `backbone verify` finds nothing there, or where its flags say.
func judge(t *testing.T, dsn string, flags ...string) *judgement {
	t.Helper()
	store, err := wire.OpenReader(t.Context(), dsn, configs.Archive{})
	require.NoError(t, err)
	defer store.Close()
	installed, err := store.Directory.Installation(t.Context())
	require.NoError(t, err)
	j := &judgement{rules: oracle.For(t), partitions: map[string]domain.PartitionID{}}
	j.books, err = oracle.Read(t.Context(), store.Events)
	require.NoError(t, err)
	for p, events := range j.books {
		if len(events) > 0 {
			j.partitions[events[0].Scope.LegalEntity] = p
		}
	}
	j.rules.Chains(installed.LogName, j.books)
	j.rules.Intents(t.Context(), store.Intents, j.books)
	if flags == nil {
		flags = []string{"--dsn", dsn}
	}
	verdict := command(t, nil, append([]string{"verify"}, flags...)...)
	require.Zero(t, verdict.code, verdict)
	return j
}

// confirmation is an answer to the request with a key.
type confirmation struct {
	key, entity string
	answer      outcome
}

// requireConfirmed requires that the logs have what clients were told, once.
func (j *judgement) requireConfirmed(t *testing.T, told []confirmation) {
	t.Helper()
	var answers []oracle.Answers
	for _, c := range told {
		require.NotEmpty(t, c.answer.Events, "%s was answered without an event", c.key)
		a := oracle.Answers{Key: c.key, Partition: j.partitions[c.entity], Intents: map[domain.ID]bool{}}
		if c.answer.IntentID != "" {
			a.Intents[parsedID(t, c.answer.IntentID)] = true
		}
		for _, e := range c.answer.Events {
			a.Events = append(a.Events, ports.AppendedEvent{ID: parsedID(t, e.ID), Sequence: sequenceOf(e.Sequence)})
		}
		answers = append(answers, a)
	}
	j.rules.Confirmed(j.books, answers)
}

func parsedID(t *testing.T, text string) domain.ID {
	t.Helper()
	id, err := domain.ParseID(text)
	require.NoError(t, err, text)
	return id
}

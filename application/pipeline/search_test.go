package pipeline_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/pipeline"
	kinds "github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// unrecorded records no search.
type unrecorded struct{}

func (unrecorded) Record(context.Context, ports.Principal, disclosure.Purpose, ...disclosure.Access) error {
	return nil
}

// noManifests knows no intents.
type noManifests struct{}

func (noManifests) Manifest(context.Context, shredding.Location) (*shredding.Manifest, error) {
	return nil, nil
}

// TestIntents_AreSearched: a person is found by a request that waits, and when it was rejected, until
// the person is erased. A refused request holds no values.
func TestIntents_AreSearched(t *testing.T) {
	t.Parallel()
	s := newVaultFixture(t)
	var left bytes.Buffer
	config := blindindex.Config{
		Store: s.store.BlindIndex, Log: s.store.Events, Intents: s.store.Intents, Entities: s.store.Directory, Types: administration.NewEventTypes(s.store.Registry),
		Manifests: s.manifests, Opener: s.vault, Secrets: s.vault, Accesses: unrecorded{}, Leases: s.store.Leases, Node: "node-1", Clock: clock{}, Logger: slog.New(slog.NewTextHandler(&left, nil)),
		Limits: blindindex.Limits{Interval: time.Millisecond, Renew: time.Second, Batch: 10, Bytes: 1 << 20},
	}
	x := testkit.Must(blindindex.New(config))
	search := func() []blindindex.Person {
		t.Helper()
		require.NoError(t, x.RunOnce(t.Context()))
		found, err := x.Search(t.Context(), ports.Principal{TenantID: "acme"}, disclosure.Purpose{}, blindindex.Query{
			Kind: kinds.Email, Text: canary, Entities: []ports.LegalEntity{s.entity}, Limit: 10,
		})
		require.NoError(t, err)
		require.Empty(t, found.Behind)
		return found.Persons
	}
	_, err := s.service.Submit(t.Context(), clerk, s.registerMember(feeDenied))
	s.requireRefusal(t, err, "membership.full")
	require.Empty(t, search())

	waiting, err := s.service.Submit(t.Context(), clerk, s.registerMember(500))
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, waiting.Status)
	want := []blindindex.Person{{
		Subject: "member:M-1", Places: []blindindex.Place{{LegalEntity: "USMF", Type: "membership.register_member", Path: "$.email", Class: shredding.Contact}},
	}}
	require.Equal(t, want, search())
	_, err = s.service.Reject(t.Context(), board, pipeline.Decision{LegalEntity: s.entity, Intent: waiting.IntentID})
	require.NoError(t, err)
	require.NoError(t, s.store.BlindIndex.ClearBlindIndex(t.Context()))
	require.Equal(t, want, search(), "the row keeps what was rejected")
	require.Empty(t, left.String())
	require.NoError(t, s.store.BlindIndex.ClearBlindIndex(t.Context()))
	config.Manifests = noManifests{} // a node without the module
	require.NoError(t, testkit.Must(blindindex.New(config)).RunOnce(t.Context()))
	require.Empty(t, search())
	require.Contains(t, left.String(), "code=intent.type_unknown")
	require.NoError(t, s.store.BlindIndex.ClearBlindIndex(t.Context()))

	_, err = s.service.Submit(t.Context(), clerk, s.registerMember(5))
	require.NoError(t, err)
	want[0].Places = append([]blindindex.Place{{LegalEntity: "USMF", Type: "membership.member.registered", Path: "$.email", Class: shredding.Contact}}, want[0].Places...)
	require.Equal(t, want, search())

	s.erase(t)
	s.vault.EvictAll()
	require.NoError(t, s.store.BlindIndex.ClearBlindIndex(t.Context()))
	require.Empty(t, search())
}

package pipeline_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// vaultFixture is a membershipFixture with the product's vault over a key store.
type vaultFixture struct {
	*membershipFixture
	keys      *memory.KeyStore
	manifests module.Manifests
	vault     *vault.Vault
}

func newVaultFixture(t *testing.T) *vaultFixture {
	t.Helper()
	s := &vaultFixture{keys: memory.NewKeyStore()}
	require.NoError(t, s.keys.Rotation().AddKEK(t.Context(), ports.KEK{TenantID: "acme", Epoch: 1, KeyID: "kek-1", State: ports.KEKPending}))
	require.NoError(t, s.keys.Rotation().ActivateKEK(t.Context(), "acme", 1))
	s.membershipFixture = newMembershipFixtureOn(t, memory.New(memory.Config{LogName: "membership.example.org", Keys: s.keys}), func(m module.Manifests) vaultPort {
		s.manifests = m
		s.vault = testkit.Must(vault.New(vault.Config{
			Keys: s.keys, DataKeys: memory.NewDataKeys(), Manifests: m,
			Limits: vault.Limits{Entries: 1000, Life: time.Minute, Poll: 5 * time.Second, MaxCalls: 64, MaxCallWait: 5 * time.Second},
		}))
		return s.vault
	})
	return s
}

// erase erases the member, up to the destruction of the keys.
func (s *vaultFixture) erase(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	r := ports.ErasureRequest{
		ID: event.ID{9}, TenantID: "acme", Subject: "member:M-1", Partitions: []event.PartitionID{s.entity.Partition}, Basis: shredding.SubjectRequest,
		RequestedBy: "p-officer", RequestedAt: time.Now(), State: shredding.ErasureRequested,
	}
	require.NoError(t, s.keys.Erasures().AddErasure(ctx, r))
	r, err := s.keys.Erasures().Erasure(ctx, "acme", r.ID)
	require.NoError(t, err)
	r.State, r.Scope = shredding.ErasurePreviewed, event.Hash{1}
	r, err = s.keys.Erasures().MoveErasure(ctx, r)
	require.NoError(t, err)
	r, err = s.keys.Erasures().ApproveErasure(ctx, r.ID, "p-second", r.Scope, time.Now())
	require.NoError(t, err)
	for _, class := range shredding.KeyClasses() {
		r.Classes = append(r.Classes, ports.ErasureClass{Class: class, Erased: true})
	}
	_, err = s.keys.Erasures().FenceErasure(ctx, r)
	require.NoError(t, err)
	_, _, err = s.keys.Erasures().DestroyErasure(ctx, r.ID, nil)
	require.NoError(t, err)
}

// email reads an intent's email as a reader with full access.
func (s *vaultFixture) email(t *testing.T, id event.ID) string {
	t.Helper()
	stored, _, err := s.service.Get(t.Context(), s.entity, id)
	require.NoError(t, err)
	documents := []module.SealedDocument{{At: module.LocationOf(&stored), Document: stored.Payload}}
	require.NoError(t, s.vault.Open(t.Context(), documents, fullAccess{}))
	return string(documents[0].Document)
}

type fullAccess struct{ module.Masked }

func (fullAccess) Reads(string, shredding.Class) bool { return true }

func TestApprove_AfterErasure(t *testing.T) {
	t.Parallel()
	s := newVaultFixture(t)
	done, err := s.service.Submit(t.Context(), clerk, s.registerMember(5))
	require.NoError(t, err)
	parked, err := s.service.Submit(t.Context(), clerk, s.registerMember(500))
	require.NoError(t, err)
	require.Contains(t, s.email(t, done.IntentID), canary)

	s.erase(t)
	// This node has the key cached, so it seals; the append finds the key fenced.
	_, err = s.service.Submit(t.Context(), clerk, s.registerMember(5))
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))
	s.vault.EvictAll()
	_, err = s.service.Submit(t.Context(), clerk, s.registerMember(5))
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))
	for _, id := range []event.ID{done.IntentID, parked.IntentID} {
		require.Contains(t, s.email(t, id), shredding.Redacted)
	}
	_, err = s.service.Approve(t.Context(), board, pipeline.Decision{LegalEntity: s.entity, Intent: parked.IntentID})
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))

	// Intents without the personal field still work, and planners fold events whose values
	// can no longer be opened.
	plain := s.registerMember(5)
	plain.Payload = []byte(`{"member":"M-1","fee":5}`)
	_, err = s.service.Submit(t.Context(), clerk, plain)
	require.NoError(t, err)
}

// Intents that were accepted during the destruction of the keys are unreadable
// afterwards; all other intents were refused as erased.
func TestAppend_DuringErasure(t *testing.T) {
	t.Parallel()
	s := newVaultFixture(t)
	first, err := s.service.Submit(t.Context(), clerk, s.registerMember(5))
	require.NoError(t, err)
	accepted := []event.ID{first.IntentID}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				out, err := s.service.Submit(t.Context(), clerk, s.registerMember(500)) // needs approval, so that the requests do not conflict on a stream
				switch fault.CodeOf(err) {
				case "":
					mu.Lock()
					accepted = append(accepted, out.IntentID)
					mu.Unlock()
				case shredding.CodeSubjectErased:
					return
				default:
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	s.erase(t)
	wg.Wait()
	s.vault.EvictAll()
	for _, id := range accepted {
		require.Contains(t, s.email(t, id), shredding.Redacted)
	}
}

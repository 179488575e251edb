package pipeline_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// readEmail submits an intent whose planner opens the first member's email.
func (s *vaultFixture) readEmail(t *testing.T, name, use string) (pipeline.Outcome, error) {
	t.Helper()
	return s.service.Submit(t.Context(), clerk, pipeline.Request{Type: name, LegalEntity: s.entity, Payload: json.RawMessage(`{"use":"` + use + `"}`)})
}

// lastData is the data of the newest event of members, as stored.
func (s *vaultFixture) lastData(t *testing.T) string {
	t.Helper()
	events, _, err := s.store.Events.ReadStream(t.Context(), ports.StreamQuery{Partition: s.entity.Partition, Stream: event.StreamID{Type: "membership", ID: "main"}, Limit: 100})
	require.NoError(t, err)
	data, err := events[len(events)-1].Data()
	require.NoError(t, err)
	return string(data)
}

func TestStateOpen(t *testing.T) {
	t.Parallel()
	const reader, canaryLength = "membership.read_email", `"fee":27`
	newFixture := func(t *testing.T) *vaultFixture {
		s := newVaultFixture(t)
		_, err := s.service.Submit(t.Context(), clerk, s.registerMember(5))
		require.NoError(t, err)
		return s
	}

	t.Run("value_is_opened_and_sealed_again", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		out, err := s.readEmail(t, reader, "seal")
		require.NoError(t, err)
		require.Equal(t, intent.Executed, out.Status)
		require.Contains(t, s.lastData(t), canaryLength, "the planner saw the value")
		require.Contains(t, s.lastData(t), `"sub":"member:M-2"`)
	})
	t.Run("erased_value_reads_redacted", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		s.erase(t)
		s.vault.EvictAll()
		_, err := s.readEmail(t, reader, "count")
		require.NoError(t, err)
		require.Contains(t, s.lastData(t), `"fee":10`, "the length of [REDACTED]")
	})
	t.Run("undeclared_class_is_refused", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		_, err := s.readEmail(t, "membership.peek_email", "count")
		s.requireRefusal(t, err, "pii.class_undeclared")
		require.ErrorContains(t, err, "membership.peek_email")
		require.ErrorContains(t, err, "contact")
		s.erase(t)
		s.vault.EvictAll()
		_, err = s.readEmail(t, "membership.peek_email", "count")
		require.Equal(t, "pii.class_undeclared", fault.CodeOf(err), "also of an erased value")
	})
	t.Run("unavailable_key_store_decides_nothing", func(t *testing.T) {
		t.Parallel()
		s := newMembershipFixture(t)
		_, err := s.service.Submit(t.Context(), clerk, s.registerMember(5))
		require.NoError(t, err)
		down := fault.New(fault.Unavailable, "keys.unavailable", "no connection; try again")
		s.vault.set(func(v *fakeVault) { v.unavailable = down })
		_, err = s.service.Submit(t.Context(), clerk, pipeline.Request{Type: reader, LegalEntity: s.entity, Payload: json.RawMessage(`{"use":"count"}`)})
		require.ErrorIs(t, err, down)
		f, _ := fault.As(err)
		require.Empty(t, f.IntentID, "nothing is stored, so the request can be sent again")

		c := s.service.Config
		c.Opener = nil
		_, err = testkit.Must(pipeline.New(c)).Submit(t.Context(), clerk, pipeline.Request{Type: reader, LegalEntity: s.entity, Payload: json.RawMessage(`{"use":"count"}`)})
		require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
	})
	t.Run("opened_value_in_clear_is_refused", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		before := s.lastData(t)
		for use, code := range map[string]string{"facts": "policy.personal_facts", "store": "policy.personal_facts", "tag": "pii.in_identifier"} {
			_, err := s.readEmail(t, reader, use)
			require.Equal(t, code, fault.CodeOf(err), "%s: %v", use, err)
			require.NotContains(t, err.Error(), canary)
		}
		_, err := s.readEmail(t, reader, "refuse")
		stored := s.requireRefusal(t, err, "membership.closed")
		require.NotContains(t, err.Error(), canary, "the submitter did not send it")
		require.Empty(t, stored.Refusal.Detail)
		require.Equal(t, before, s.lastData(t))
	})
	t.Run("callers_own_text_reveals_nothing", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		s.appender.forbidden = nil // the caller sends the value where it is not sealed
		_, err := s.service.Submit(t.Context(), clerk, pipeline.Request{
			Type: reader, LegalEntity: s.entity, Payload: json.RawMessage(`{"use":"label","label":"seen ` + canary + `"}`),
		})
		require.NoError(t, err)
	})
	t.Run("dry_run_masks_the_value", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		out, err := s.service.Submit(t.Context(), clerk, pipeline.Request{Type: reader, LegalEntity: s.entity, Payload: json.RawMessage(`{"use":"seal"}`), DryRun: true})
		require.NoError(t, err)
		shown, err := json.Marshal(out.Drafts[0].Data)
		require.NoError(t, err)
		require.JSONEq(t, `{"member":"M-2","email":`+shredding.Masked+`,"fee":27}`, string(shown))
	})
}

func TestContainsWords(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"ada": true, "to ada.": true, "of:ada": true, "x-ada-y": true, "1ada ada": true,
		"": false, "adam": false, "Zada": false, "9ada": false, "ada1": false, "\u00e9ada": false, "ada\u00e9": false,
	} {
		require.Equal(t, want, pipeline.ContainsWords(s, "ada"), s)
	}
}

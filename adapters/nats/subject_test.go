package nats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/domain/event"
)

func skeleton(tenant, entity, eventType string) *event.Skeleton {
	return &event.Skeleton{Type: eventType, Scope: event.Scope{TenantID: tenant, LegalEntity: entity}}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tenant, entity, eventType, want string }{
		{"acme", "USMF", "ap.invoice.approved", "backbone.acme.USMF.ap.invoice.approved"},
		{"ac.me", "US MF", "ap.x", "backbone.ac%2Eme.US%20MF.ap.x"},
		{"a*", "b>", "c", "backbone.a%2A.b%3E.c"},
		{"größe", "", "a..b", "backbone.gr%C3%B6%C3%9Fe.%.a.%.b"},
		{"%20", " ", "c", "backbone.%2520.%20.c"},
	} {
		require.Equal(t, c.want, nats.Subject("backbone", skeleton(c.tenant, c.entity, c.eventType)))
	}
	long := nats.Subject("backbone", skeleton(strings.Repeat("ü", 300), strings.Repeat("x", 257), "c"))
	require.Less(t, len(long), 600)
	require.NotEqual(t, long, nats.Subject("backbone", skeleton(strings.Repeat("ü", 301), strings.Repeat("x", 257), "c")))
}

// TestSubject_IsInjective looks for two events that differ in tenant, legal entity or
// type and share a subject, and for subjects that a server would not take.
func TestSubject_IsInjective(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab.%*> ~2E0\t\x00ü")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a := [3]string{text.Draw(t, "tenant"), text.Draw(t, "entity"), text.Draw(t, "type")}
		b := [3]string{text.Draw(t, "tenant2"), text.Draw(t, "entity2"), text.Draw(t, "type2")}
		sa, sb := nats.Subject("p", skeleton(a[0], a[1], a[2])), nats.Subject("p", skeleton(b[0], b[1], b[2]))
		require.Equal(t, a == b, sa == sb, "%q and %q", a, b)
		for _, token := range strings.Split(sa, ".") {
			require.NotEmpty(t, token)
			require.NotContains(t, token, "*")
			require.NotContains(t, token, ">")
		}
		require.NotContains(t, sa, " ")
		for _, c := range []byte(sa) {
			require.True(t, c > ' ' && c <= '~')
		}
	})
}

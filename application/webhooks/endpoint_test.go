package webhooks_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// TestCustomHeaders keeps headers as secrets and sends them to no other host.
func TestCustomHeaders(t *testing.T) {
	t.Parallel()
	h := newFixture()
	s := h.service()
	set := func(url string, headers []ports.Header) (webhooks.Endpoint, error) {
		e, _, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: url, Headers: headers})
		return e, err
	}
	const secret = "Bearer s3cr3t"
	headers := []ports.Header{{Name: "x-route", Value: "eu"}, {Name: "authorization", Value: secret}}
	e, err := set("https://example.org/hook", headers)
	require.NoError(t, err)
	require.Equal(t, []string{"Authorization", "X-Route"}, e.HeaderNames)
	stored, err := h.endpoints.WebhookEndpoint(t.Context(), h.sub.UID)
	require.NoError(t, err)
	require.False(t, bytes.Contains(stored.Headers, []byte("s3cr3t")) || bytes.Contains(stored.Headers, []byte("eu")), "values are stored encrypted")

	sent := func() []ports.Header {
		_, err := s.Test(t.Context(), owner, "orders")
		require.NoError(t, err)
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.sent[len(h.sent)-1].Headers
	}
	want := []ports.Header{{Name: "Authorization", Value: secret}, {Name: "X-Route", Value: "eu"}}
	require.Equal(t, want, sent())

	_, err = set("https://EXAMPLE.org/other", nil)
	require.NoError(t, err, "another path of the same host")
	require.Equal(t, want, sent())
	for _, other := range []string{"https://evil.example.org/hook", "https://example.org:8443/hook"} {
		_, err = set(other, nil)
		require.Equal(t, "webhook.headers_missing", fault.CodeOf(err), other)
	}

	// An attacker who changes the address in the database gets no headers.
	stored, err = h.endpoints.WebhookEndpoint(t.Context(), h.sub.UID)
	require.NoError(t, err)
	stolen := stored
	stolen.URL, stolen.Revision = "https://evil.example.org/hook", stored.Revision+1
	require.NoError(t, h.endpoints.SaveWebhookEndpoint(t.Context(), stolen))
	tested, err := s.Test(t.Context(), owner, "orders")
	require.NoError(t, err)
	require.Equal(t, "webhook.endpoint_unrecorded", tested.Code)

	e, err = set("https://evil.example.org/hook", []ports.Header{})
	require.NoError(t, err)
	require.Empty(t, e.HeaderNames)
	require.Empty(t, sent())

	for name, wrong := range map[string][]ports.Header{
		"reserved": {{Name: "webhook-id", Value: "x"}},
		"twice":    {{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}},
		"too many": make([]ports.Header, 11),
	} {
		_, err = set("https://example.org/hook", wrong)
		require.Equal(t, "webhook.header_invalid", fault.CodeOf(err), name)
	}
	h.keys = fault.New(fault.Unavailable, "kms.unavailable", "away; wait")
	_, err = set("https://example.org/hook", headers)
	require.Equal(t, "kms.unavailable", fault.CodeOf(err), "nothing is stored in the clear when keys are away")
}

// TestService_DeletedEndpoint sends nothing, and comes again with another secret.
func TestService_DeletedEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		s := h.service()
		require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(s.Delete(t.Context(), owner, "orders")))
		first, _, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook", Headers: []ports.Header{{Name: "X-A", Value: "1"}}})
		require.NoError(t, err)
		h.run(t, "a", nil)
		h.add("k")
		h.requireDelivered(t, 1)
		require.Equal(t, "subscription.not_found", fault.CodeOf(s.Delete(t.Context(), ports.Principal{TenantID: "acme", PersonID: "p-2"}, "orders")))
		require.NoError(t, s.Delete(t.Context(), owner, "orders"))
		require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(s.Delete(t.Context(), owner, "orders")))
		_, err = s.Endpoint(t.Context(), webhooks.Caller{Principal: owner}, "orders")
		require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))
		_, err = s.Rotate(t.Context(), owner, "orders")
		require.Equal(t, "webhook.endpoint_not_found", fault.CodeOf(err))
		list, err := s.List(t.Context(), webhooks.Caller{Principal: owner})
		require.NoError(t, err)
		require.Empty(t, list)
		stored, err := h.endpoints.WebhookEndpoint(t.Context(), h.sub.UID)
		require.NoError(t, err)
		require.NotContains(t, stored.URL, "example.org")
		require.Empty(t, stored.Headers)
		pass(time.Minute)
		require.Empty(t, h.leased(t), "its lease row goes")

		again, created, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook"})
		require.NoError(t, err)
		require.True(t, created)
		require.NotEqual(t, first.Secret, again.Secret)
		require.NotEmpty(t, again.Secret)
		reconcile()
		h.add("k")
		h.requireDelivered(t, 2)
	})
}

// leased names the leases that there are.
func (h *webhookFixture) leased(t *testing.T) (names []string) {
	t.Helper()
	list, err := h.leases.List(t.Context(), "")
	require.NoError(t, err)
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names
}

// TestDispatcher_PrunesLeases leaves no row behind, and keeps leases of other names.
func TestDispatcher_PrunesLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		_, err := h.leases.Hold(t.Context(), "x", time.Microsecond, []ports.LeaseResource{{Name: "projection/a/1", Partition: 3}, {Name: "webhook/" + event.ID{99}.String()}})
		require.NoError(t, err)
		pass(time.Microsecond)
		h.run(t, "a", nil)
		h.add("k")
		h.requireDelivered(t, 1)
		mine := "webhook/" + h.sub.UID.String()
		require.Equal(t, []string{"projection/a/1", mine}, h.leased(t))
		h.mu.Lock()
		h.gone = true
		h.mu.Unlock()
		pass(time.Minute)
		require.Equal(t, []string{"projection/a/1"}, h.leased(t))
	})
}

// TestAttempts shows what came of attempts, with the time of the next.
func TestAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.sub.Settings.MaxRetries, h.sub.Settings.RetryFirst, h.sub.Settings.RetryLongest = 1, time.Minute, time.Hour
		h.set(t)
		h.answer = func(r ports.WebhookRequest) (ports.WebhookAnswer, error) {
			h.mu.Lock()
			n := len(h.sent)
			h.mu.Unlock()
			switch n {
			case 1:
				return ports.WebhookAnswer{}, fault.New(fault.Unavailable, "webhook.timeout", "late; it will be tried again")
			case 2:
				return ports.WebhookAnswer{Status: 500}, nil
			default:
				return ports.WebhookAnswer{Status: 204}, nil
			}
		}
		stop := h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		h.add("k")
		h.requireDelivered(t, 1)
		stop() // what was not written down yet is
		caller := webhooks.Caller{Principal: owner}
		list, err := h.service().Attempts(t.Context(), caller, "orders", 10)
		require.NoError(t, err)
		require.Len(t, list, 3)
		taken, parked, late := find(list, 3), find(list, 2), find(list, 1)
		require.Equal(t, "webhook.timeout", late.Code)
		require.Zero(t, late.Status)
		require.Equal(t, late.At.Add(time.Minute), late.Next, "as the settings say")
		require.Equal(t, "webhook.status_500", parked.Code)
		require.Equal(t, 500, parked.Status)
		require.Zero(t, parked.Next, "that was the last one")
		require.Equal(t, 204, taken.Status)
		require.Empty(t, taken.Code)
		require.Equal(t, "USMF", taken.LegalEntity)
		require.EqualValues(t, 1, taken.Sequence)

		_, err = h.service().Attempts(t.Context(), webhooks.Caller{Principal: ports.Principal{TenantID: "acme", PersonID: "p-2"}}, "orders", 10)
		require.Equal(t, "subscription.not_found", fault.CodeOf(err))
		operator := webhooks.Caller{Principal: ports.Principal{TenantID: "acme", PersonID: "p-2"}, Operator: true}
		shown, err := h.service().List(t.Context(), operator)
		require.NoError(t, err)
		require.Len(t, shown, 1)
		require.Equal(t, "orders", shown[0].Subscription.ID)
		require.NotNil(t, shown[0].Last)
		require.Empty(t, shown[0].Secret)
		e, err := h.service().Endpoint(t.Context(), operator, "orders")
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Minute}, e.Schedule)
		none, err := h.service().List(t.Context(), webhooks.Caller{Principal: ports.Principal{TenantID: "globex", PersonID: "p-1"}, Operator: true})
		require.NoError(t, err)
		require.NotNil(t, none)
		require.Empty(t, none)
	})
}

// TestHosts sends nothing to hosts that no administrator has allowed.
func TestHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		s := h.service()
		set := func(address string) error {
			_, _, err := s.Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: address})
			return err
		}
		require.NoError(t, s.RemoveHost(t.Context(), owner, "example.org", ""))
		require.Equal(t, "webhook.host_not_allowed", fault.CodeOf(set("https://example.org/hook")))
		require.NoError(t, s.AllowHost(t.Context(), owner, "Example.ORG.", ""))
		require.NoError(t, s.AllowHost(t.Context(), owner, "example.org:443", ""), "the same")
		require.NoError(t, s.AllowHost(t.Context(), owner, "[2001:DB8:0::1]:8443", ""))
		hosts, err := s.Hosts(t.Context(), owner)
		require.NoError(t, err)
		require.Len(t, hosts, 4, "with the two others of the fixture")
		for _, address := range []string{"https://example.org/hook", "https://EXAMPLE.org:443/", "https://example.org./x", "https://[2001:db8::1]:8443/"} {
			require.NoError(t, set(address), address)
		}
		for _, address := range []string{"https://example.org:8444/", "https://sub.example.org/", "https://example.org.evil.org/", "https://[2001:db8::1]/"} {
			require.Equal(t, "webhook.host_not_allowed", fault.CodeOf(set(address)), address)
		}
		for _, text := range []string{"", "*", "*.example.org", "https://example.org", "example.org/x", "a@example.org", "exa mple.org", "a%2fb", "-a.org", strings.Repeat("a", 301)} {
			require.Equal(t, "webhook.host_invalid", fault.CodeOf(s.AllowHost(t.Context(), owner, text, "")), text)
		}

		// A host that is removed later gets nothing from then on.
		require.NoError(t, set("https://example.org/hook"))
		require.NoError(t, s.RemoveHost(t.Context(), owner, "example.org", ""))
		tested, err := s.Test(t.Context(), owner, "orders")
		require.NoError(t, err)
		require.Equal(t, "webhook.host_not_allowed", tested.Code)
		h.run(t, "a", nil)
		h.add("k")
		synctest.Wait()
		require.NotEmpty(t, h.refusals)
		require.Equal(t, "webhook.host_not_allowed", h.refusals[0])
		require.Empty(t, h.sent)
		require.Empty(t, h.encoding, "nothing is opened that is not sent")

		for i := range 200 {
			if err = s.AllowHost(t.Context(), owner, fmt.Sprintf("h%d.example.org", i), ""); err != nil {
				break
			}
		}
		require.Equal(t, "webhook.too_many_hosts", fault.CodeOf(err))
	})
}

// TestPersonalValues_MaskedByDefault opens personal values only for an endpoint that was set for
// them, with a reason and the right, and only as long as the owner has that right.
func TestPersonalValues_MaskedByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		set := func(reason string) error {
			_, _, err := h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook", PersonalReason: reason})
			return err
		}
		const reason = "The vendor portal greets by name."
		require.Equal(t, "auth.forbidden", fault.CodeOf(set(reason)))
		h.mu.Lock()
		h.discloses = true
		h.mu.Unlock()
		for _, bad := range []string{" ", strings.Repeat("x", 501)} {
			require.Equal(t, "webhook.personal_reason_invalid", fault.CodeOf(set(bad)))
		}
		require.Equal(t, fault.Invalid, fault.KindOf(set("Ask olga@example.org.")))
		require.NoError(t, set(""))
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		deliver := func(personal bool) {
			t.Helper()
			h.mu.Lock()
			n := len(h.queue) + 1
			h.mu.Unlock()
			h.add("k")
			h.requireDelivered(t, n)
			h.mu.Lock()
			defer h.mu.Unlock()
			require.Equal(t, personal, h.personal[len(h.personal)-1])
		}
		deliver(false)
		require.NoError(t, set(reason))
		deliver(true)
		h.mu.Lock()
		h.discloses = false
		h.mu.Unlock()
		deliver(false)
		h.mu.Lock()
		h.discloses = true
		h.mu.Unlock()
		require.NoError(t, set(""))
		deliver(false)
	})
}

// TestEndpoints_OfOtherLegalEntities hides endpoints from operators of other legal entities.
func TestEndpoints_OfOtherLegalEntities(t *testing.T) {
	t.Parallel()
	h := newFixture()
	h.sub.Filter.LegalEntities = []string{"USMF"}
	h.set(t)
	for code, visible := range map[string]bool{"USMF": true, "DEMF": false} {
		c := webhooks.Caller{Principal: ports.Principal{TenantID: "acme", PersonID: "p-2", LegalEntities: []string{code}}, Operator: true}
		_, endpoint := h.service().Endpoint(t.Context(), c, "orders")
		_, attempts := h.service().Attempts(t.Context(), c, "orders", 10)
		list, err := h.service().List(t.Context(), c)
		require.NoError(t, err)
		if visible {
			require.NoError(t, endpoint)
			require.NoError(t, attempts)
			require.Len(t, list, 1)
			continue
		}
		require.Equal(t, "subscription.not_found", fault.CodeOf(endpoint))
		require.Equal(t, "subscription.not_found", fault.CodeOf(attempts))
		require.Empty(t, list)
	}
}

// TestAttempts_HideOtherLegalEntities reads as a caller who may see one legal entity only,
// whose attempts are older than those at events of another.
func TestAttempts_HideOtherLegalEntities(t *testing.T) {
	t.Parallel()
	h := newFixture()
	h.more = []ports.LegalEntity{{Partition: 6, TenantID: "acme", Code: "DEMF"}}
	h.set(t)
	at := event.Micros(h.clock.Now())
	var all []ports.WebhookAttempt
	for n := range 30 {
		a := ports.WebhookAttempt{EventID: event.ID{9, byte(n)}, Partition: 5, Sequence: event.Sequence(n + 1), Attempt: 1, At: at.Add(time.Duration(n) * time.Second), Status: 204}
		if n >= 3 {
			a.Partition = 6
		}
		all = append(all, a)
	}
	require.NoError(t, h.endpoints.AddWebhookAttempts(t.Context(), h.sub.UID, all, 100))
	for name, c := range map[string]webhooks.Caller{
		"an operator":                      {Principal: ports.Principal{TenantID: "acme", PersonID: "p-2", LegalEntities: []string{"USMF"}}, Operator: true},
		"the owner, who may see less than": {Principal: ports.Principal{TenantID: "acme", PersonID: "p-1", LegalEntities: []string{"USMF"}}},
	} {
		list, err := h.service().Attempts(t.Context(), c, "orders", 2)
		require.NoError(t, err, name)
		require.Len(t, list, 2, name)
		require.Equal(t, []string{"USMF", "USMF"}, []string{list[0].LegalEntity, list[1].LegalEntity}, name)
		require.Equal(t, all[2], list[0].WebhookAttempt, name)
		shown, err := h.service().List(t.Context(), c)
		require.NoError(t, err, name)
		require.Equal(t, all[2], shown[0].Last.WebhookAttempt, name)
		c.LegalEntities = []string{"FRMF"}
		list, err = h.service().Attempts(t.Context(), c, "orders", 2)
		require.NoError(t, err, name)
		require.NotNil(t, list, name)
		require.Empty(t, list, name)
		shown, err = h.service().List(t.Context(), c)
		require.NoError(t, err, name)
		require.Nil(t, shown[0].Last, name)
	}
	list, err := h.service().Attempts(t.Context(), webhooks.Caller{Principal: owner}, "orders", 2)
	require.NoError(t, err)
	require.Equal(t, "DEMF", list[0].LegalEntity)
}

func find(list []webhooks.Attempt, attempt int) webhooks.Attempt {
	for _, a := range list {
		if a.Attempt == attempt {
			return a
		}
	}
	return webhooks.Attempt{}
}

// TestDispatcher_HandsOverEndpoints hands an endpoint to a node that comes, while a delivery
// is under way, which comes to its end.
func TestDispatcher_HandsOverEndpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		begun, release := make(chan struct{}), make(chan struct{})
		h.answer = func(r ports.WebhookRequest) (ports.WebhookAnswer, error) {
			h.mu.Lock()
			first := len(h.sent) == 1
			h.mu.Unlock()
			if first {
				close(begun)
				<-release
			}
			return ports.WebhookAnswer{Status: 204}, nil
		}
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		answerFirst := sync.OnceFunc(func() { close(release) })
		t.Cleanup(answerFirst) // runs before node a is stopped, which waits for the delivery
		h.add("k")
		<-begun
		holder := func() string {
			list, err := h.leases.List(context.Background(), "webhook/"+h.sub.UID.String())
			require.NoError(t, err)
			require.Len(t, list, 1)
			return list[0].Holder
		}
		require.Equal(t, "a", holder())
		heir, resource := "b", ports.LeaseResource{Name: "webhook/" + h.sub.UID.String()}
		for i := 0; ports.Preferred([]string{"a", heir}, resource) != heir; i++ {
			heir = fmt.Sprint("b", i)
		}
		h.run(t, heir, nil)
		reconcile() // a gives it away
		reconcile() // and the heir takes it
		require.Equal(t, heir, holder())
		require.Zero(t, h.delivered())
		answerFirst()
		h.requireDelivered(t, 1)
		h.mu.Lock()
		require.Len(t, h.sent, 1, "handing over repeats nothing")
		h.mu.Unlock()
		require.Error(t, h.context(1).Err(), "what ran here for the endpoint is let go")
		h.add("k")
		h.requireDelivered(t, 2)
	})
}

// TestDispatcher_ChangeDrainsDeliveries changes a subscription, such as a reset does, and its
// endpoint while a delivery is in flight: later deliveries use the change, and the one in
// flight finishes.
func TestDispatcher_ChangeDrainsDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		h.set(t)
		begun, release := make(chan struct{}), make(chan struct{})
		h.answer = func(r ports.WebhookRequest) (ports.WebhookAnswer, error) {
			h.mu.Lock()
			first := len(h.sent) == 1
			h.mu.Unlock()
			if first {
				close(begun)
				<-release
			}
			return ports.WebhookAnswer{Status: 204}, nil
		}
		h.run(t, "a", func(c *webhooks.Config) { c.Concurrency = 1 })
		end := sync.OnceFunc(func() { close(release) })
		t.Cleanup(end)
		h.add("k")
		<-begun
		for i, change := range []func(){
			func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.sub.Revision++
			},
			func() {
				_, _, err := h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/other"})
				require.NoError(t, err)
			},
		} {
			change()
			h.add(fmt.Sprint("other ", i)) // which only a worker that does not wait for the answer delivers
			reconcile()
			h.requireDelivered(t, 1+i)
			require.NoError(t, h.context(1).Err(), "what is under way is not broken off")
		}
		end()
		h.requireDelivered(t, 3)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.sent, 3, "nothing was sent twice")
	})
}

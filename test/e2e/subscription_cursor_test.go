package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSubscriptionFromFeedCursor starts a subscription at the cursor of pages of all legal
// entities, and gets a warning for an order key that no event has.
func TestSubscriptionFromFeedCursor(t *testing.T) {
	t.Parallel()
	const entity = "SUBC"
	d := sharedDev(t)
	newEntity(t, d, entity)
	registerMachines(t, d)
	module := d.as(t, "module")
	write := func(n int) {
		t.Helper()
		for range n {
			var receipt receipts
			require.NoError(t, module.want(http.StatusCreated, &receipt, "POST", "/api/events", batch(machineServiced(entity, "M-1", `{"hours":1}`))))
		}
	}
	// end follows the pages of all legal entities to their end; other tests write there too.
	end := func() (cursor string) {
		t.Helper()
		cursor = "0"
		for more := true; more; {
			var page struct {
				HasMore bool   `json:"has_more"`
				Next    string `json:"next_cursor"`
			}
			require.NoError(t, module.want(http.StatusOK, &page, "GET", "/api/streams/$all?from="+cursor+"&count=1000", ""))
			more, cursor = page.HasMore, page.Next
		}
		return cursor
	}
	write(1)
	first := end()
	write(3)
	second := end()
	write(2)
	definition := func(id, settings string) string {
		return `{"id":"` + id + `","subscriber_type":"service","subscriber_id":"machines","event_types":["` + machineType + `"],"legal_entities":["` + entity + `"],"settings":{` + settings + `}}`
	}
	var made struct {
		Settings struct {
			StartFrom   string `json:"start_from"`
			StartCursor string `json:"start_cursor"`
		} `json:"settings"`
		Warnings []struct {
			Code  string `json:"code"`
			Field string `json:"field"`
		} `json:"warnings"`
	}
	sequences := func() (out []string) {
		t.Helper()
		var got pollResult
		require.NoError(t, module.want(http.StatusOK, &got, "GET", "/api/subscriptions/after-feed/poll", ""))
		for _, e := range got.Events {
			out = append(out, e.Sequence)
		}
		return out
	}
	require.NoError(t, module.want(http.StatusCreated, &made, "POST", "/api/subscriptions", definition("after-feed", `"start_from":"cursor","start_cursor":"`+second+`"`)))
	require.Equal(t, []string{"cursor", second}, []string{made.Settings.StartFrom, made.Settings.StartCursor})
	require.Empty(t, made.Warnings)
	require.Equal(t, []string{"5", "6"}, sequences())
	require.NoError(t, module.want(http.StatusOK, nil, "POST", "/api/subscriptions/after-feed/reset", fmt.Sprintf(`{"to":"cursor","cursor":%q}`, first)))
	require.Equal(t, []string{"2", "3", "4", "5", "6"}, sequences())

	for body, code := range map[string]string{
		`"start_from":"cursor"`:                                          "subscription.settings_invalid",
		`"start_cursor":"` + first + `"`:                                 "subscription.settings_invalid",
		`"start_from":"cursor","start_cursor":"abc"`:                     "cursor.malformed",
		`"start_from":"cursor","start_cursor":"` + first[1:] + "A" + `"`: "cursor.foreign",
		`"start_from":"feed","start_cursor":"` + first + `"`:             "subscription.settings_invalid",
	} {
		a, err := module.do("POST", "/api/subscriptions", definition("never", body))
		require.NoError(t, err)
		require.Equal(t, code, a.code(), a)
	}
	require.NoError(t, module.want(http.StatusCreated, &made, "POST", "/api/subscriptions", definition("ordered", `"partition_by":"$.no.such"`)))
	require.Len(t, made.Warnings, 1)
	require.Equal(t, []string{"subscription.key_undeclared", "/settings/partition_by"}, []string{made.Warnings[0].Code, made.Warnings[0].Field})
	made.Warnings = nil
	require.NoError(t, module.want(http.StatusCreated, &made, "POST", "/api/subscriptions", definition("by-hours", `"partition_by":"$.hours"`)))
	require.Empty(t, made.Warnings)
	require.NoError(t, module.want(http.StatusOK, &made, "PUT", "/api/subscriptions/ordered/settings", `{"partition_by":"$.no.such"}`))
	require.Len(t, made.Warnings, 1)
	for _, id := range []string{"after-feed", "ordered", "by-hours"} {
		require.NoError(t, module.want(http.StatusOK, nil, "DELETE", "/api/subscriptions/"+id, ""))
	}
}

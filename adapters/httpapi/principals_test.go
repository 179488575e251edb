package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrincipals(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	call := func(token, method, path, body string) testAnswer {
		return h.do(t, testRequest{method: method, path: "/api/admin/principals" + path, token: token, body: body})
	}
	made := call("admin", "POST", "", `{"person_id":"p-new","kind":"person","roles":["ap_clerk"],"legal_entities":["DEMF"],"reason":"joined the company"}`)
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	require.Equal(t, "pii.in_text", call("admin", "POST", "", `{"person_id":"p-x2","kind":"person","roles":["ap_clerk"],"reason":"mail jo@example.org"}`).json(t)["code"])
	only := func(a testAnswer) map[string]any {
		t.Helper()
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		list := a.json(t)["principals"].([]any)
		require.Len(t, list, 1)
		return list[0].(map[string]any)
	}
	p := only(call("auditor", "GET", "?person_id=p-new", ""))
	require.Equal(t, "active", p["status"])
	require.Nil(t, p["reviewed_at"])
	require.Equal(t, "p-new", only(call("german_auditor", "GET", "?person_id=p-new", ""))["person_id"])
	require.Empty(t, call("american_auditor", "GET", "?person_id=p-new", "").json(t)["principals"])
	require.Empty(t, call("german_auditor", "GET", "?person_id=p-admin", "").json(t)["principals"], "it has access to other legal entities")
	require.Equal(t, "auth.forbidden", call("controller", "GET", "", "").json(t)["code"])

	version := p["version"].(string)
	require.Equal(t, "principal.changed", call("admin", "POST", "/p-new/review", `{"reason":"yearly review","version":"99"}`).json(t)["code"])
	require.Equal(t, "principal.version_invalid", call("admin", "POST", "/p-new/review", `{"reason":"yearly review","version":"x"}`).json(t)["code"])
	require.Equal(t, "principal.reason_missing", call("admin", "POST", "/p-new/review", `{"reason":" "}`).json(t)["code"])
	reviewed := only(call("admin", "POST", "/p-new/review", `{"reason":"yearly review","version":"`+version+`"}`))
	require.Equal(t, "p-admin", reviewed["reviewed_by"])
	require.Equal(t, "auth.forbidden", call("admin", "POST", "/p-admin/review", `{"reason":"my own"}`).json(t)["code"], "no administrator reviews their own rights")
	require.Equal(t, "auth.forbidden", call("auditor", "POST", "/p-new/review", `{"reason":"yearly review"}`).json(t)["code"])
	require.Equal(t, "principal.not_found", call("admin", "POST", "/p-none/review", `{"reason":"yearly review"}`).json(t)["code"])

	require.Equal(t, "auth.forbidden", call("american_admin", "POST", "/p-new/revoke", `{"reason":"left"}`).json(t)["code"])
	require.Equal(t, "auth.forbidden", call("admin", "POST", "/p-admin/revoke", `{"reason":"left"}`).json(t)["code"])
	require.Equal(t, "revoked", only(call("german_admin", "POST", "/p-new/revoke", `{"reason":"left"}`))["status"])
	require.Equal(t, "principal.not_found", call("admin", "POST", "/p-new/revoke", `{"reason":"left"}`).json(t)["code"])
	h.tokens["new"] = made.json(t)["token"].(string)
	require.Equal(t, http.StatusUnauthorized, h.do(t, testRequest{method: "GET", path: "/api/event-types", token: "new"}).status)
}

// An expired token is refused each time, and recorded once.
func TestPrincipals_Expiry(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	for range 3 {
		require.Equal(t, "auth.token_expired", h.do(t, testRequest{method: "GET", path: "/api/event-types", token: "expired"}).json(t)["code"])
	}
	events := h.do(t, testRequest{method: "GET", path: "/api/events?legal_entity=_ADMIN&stream_type=type&stream_id=backbone.token.expired", token: "auditor"})
	require.Equal(t, http.StatusOK, events.status, string(events.body))
	require.Len(t, events.json(t)["events"], 1)
}

// The list is read page by page: each login once, in the order of the logins.
func TestPrincipals_Pages(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	list := func(query string) testAnswer {
		return h.do(t, testRequest{method: "GET", path: "/api/admin/principals?" + query, token: "auditor"})
	}
	logins := func(a testAnswer) (out []any) {
		for _, p := range a.json(t)["principals"].([]any) {
			out = append(out, p.(map[string]any)["principal_id"])
		}
		return out
	}
	all := list("limit=1000")
	require.Equal(t, false, all.json(t)["has_more"])
	require.NotContains(t, all.json(t), "next_cursor")
	var paged []any
	cursor := ""
	for {
		a := list("limit=7" + cursor)
		page := logins(a)
		require.LessOrEqual(t, len(page), 7)
		paged = append(paged, page...)
		if a.json(t)["has_more"] == false {
			break
		}
		cursor = "&cursor=" + a.json(t)["next_cursor"].(string)
	}
	require.Greater(t, len(paged), 7)
	require.Equal(t, logins(all), paged)
	for _, query := range []string{"cursor=!", "limit=0", "limit=1001"} {
		require.Equal(t, "request.parameter_invalid", list(query).json(t)["code"], query)
	}
}

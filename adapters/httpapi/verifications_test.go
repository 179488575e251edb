package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// verificationStub ends every run at once.
type verificationStub struct {
	runs    []jobs.Run
	request jobs.Request // the last one
}

func (v *verificationStub) Start(_ context.Context, _ string, by event.Actor, r jobs.Request) (jobs.Run, error) {
	made := jobs.Run{ID: system.NewIDs().NewID(time.Now()), State: jobs.Sound, StartedBy: by.ID, StartedAt: time.Now(), EndedAt: time.Now()}
	made.Started.WholeTenant, made.Started.OpenKeys = r.WholeTenant, r.OpenKeys
	if r.WholeTenant {
		made.Erasures = &jobs.ErasuresData{}
	}
	for _, le := range r.Logs {
		made.Started.LegalEntities = append(made.Started.LegalEntities, le.Code)
		made.Checked = append(made.Checked, jobs.CheckedData{LegalEntity: le.Code, Partition: le.Partition, Events: 3, Head: 3, UnboundNumbers: 5, UnboundRequests: 6, Policy: &verify.Policy{SHA256: "ab", Release: "1.0", InForce: true}})
	}
	v.runs, v.request = append(v.runs, made), r
	return made, nil
}

func (v *verificationStub) Get(_ context.Context, _ string, id event.ID) (jobs.Run, error) {
	for _, r := range v.runs {
		if r.ID == id {
			return r, nil
		}
	}
	return jobs.Run{}, fault.New(fault.NotFound, "verification.not_found", "there is none; look again")
}

func (v *verificationStub) List(_ context.Context, _ string, limit int) ([]jobs.Run, error) {
	newest := slices.Clone(v.runs)
	slices.Reverse(newest)
	return newest[:min(limit, len(newest))], nil
}

func (v *verificationStub) Cancel(ctx context.Context, tenantID string, id event.ID, _ event.Actor) (jobs.Run, error) {
	return v.Get(ctx, tenantID, id)
}

func (v *verificationStub) Heads(string, jobs.Run) verify.Heads {
	return verify.Heads{LogName: "test.example", Partitions: []verify.Head{}}
}

func TestVerifications(t *testing.T) {
	t.Parallel()
	stub := &verificationStub{}
	h := startAPI(t, func(c *httpapi.Config) { c.Verifications = stub })
	start := func(token, body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/verifications", token: token, body: body})
	}
	whole := start("auditor", "")
	require.Equal(t, http.StatusAccepted, whole.status, string(whole.body))
	require.Equal(t, []any{"DEMF", "USMF", "_ADMIN"}, whole.json(t)["legal_entities"])
	require.Equal(t, true, whole.json(t)["whole_tenant"])
	require.Equal(t, map[string]any{"sound": true}, whole.json(t)["erasures"])
	result := whole.json(t)["results"].([]any)[2].(map[string]any)
	require.Equal(t, []any{"5", "6", map[string]any{"sha256": "ab", "release": "1.0", "in_force": true}}, []any{result["unbound_numbers"], result["unbound_requests"], result["policy"]})
	german := start("german_auditor", `{"open_keys":true}`)
	require.Equal(t, true, german.json(t)["open_keys"])
	require.True(t, stub.request.OpenKeys)
	require.NotContains(t, german.json(t), "erasures")
	require.Equal(t, []any{"DEMF"}, german.json(t)["legal_entities"])
	require.Equal(t, false, german.json(t)["whole_tenant"])
	named := start("operator", `{"legal_entities":["USMF","USMF"]}`)
	require.Equal(t, []any{"USMF"}, named.json(t)["legal_entities"])

	require.Equal(t, "auth.forbidden", start("controller", "").json(t)["code"])
	require.Equal(t, "legal_entity.not_found", start("german_auditor", `{"legal_entities":["USMF"]}`).json(t)["code"])
	require.Equal(t, "legal_entity.not_found", start("german_auditor", `{"legal_entities":["_ADMIN"]}`).json(t)["code"])
	invalid := start("auditor", `{"heads":{"log_name":"","time":"2026-03-31T12:00:00Z","partitions":[]}}`).json(t)
	require.Equal(t, "verify.heads_invalid", invalid["code"])
	require.Equal(t, http.StatusAccepted, start("auditor", `{"heads":{"log_name":"test.example","time":"2026-03-31T12:00:00Z","partitions":[
		{"tenant":"demo","legal_entity":"DEMF","partition_id":7,"sequence":2,"checksum":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c"}]}}`).status)
	require.NotNil(t, stub.request.Heads)

	get := func(token string, id any) testAnswer {
		return h.do(t, testRequest{method: "GET", path: "/api/verifications/" + id.(string), token: token})
	}
	id := whole.json(t)["id"]
	require.Equal(t, "sound", get("admin", id).json(t)["status"])
	require.Equal(t, "verification.not_found", get("german_auditor", id).json(t)["code"], "it concerns legal entities of others")
	require.Equal(t, http.StatusOK, get("german_auditor", german.json(t)["id"]).status)
	require.Equal(t, "verification.not_found", get("auditor", "nonsense").json(t)["code"])
	list := func(token string, limit int) any {
		return h.do(t, testRequest{method: "GET", path: fmt.Sprintf("/api/verifications?limit=%d", limit), token: token}).json(t)["verifications"]
	}
	require.Len(t, list("german_auditor", 100), 1)
	require.Len(t, list("german_auditor", 1), 1, "newer ones that the caller may not see do not count")
	require.Len(t, list("auditor", 2), 2)
	cancel := func(token string) int {
		return h.do(t, testRequest{method: "POST", path: "/api/verifications/" + id.(string) + "/cancel", token: token}).status
	}
	require.Equal(t, http.StatusNotFound, cancel("german_auditor"))
	require.Equal(t, http.StatusOK, cancel("operator"))
}

package event_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestPredicate_Matches(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"data":{"amount":1.50,"id":"7","note":"paid late","none":null,"paid":true,"lines":[{"account":"4000","tags":["a","b"]},{"account":"6000"}],"empty":[]},"dimensions":{}}`)
	for _, c := range []struct {
		path, operator, value string
		want                  bool
	}{
		{"$.amount", "eq", "1.5", true},
		{"$.amount", "eq", "15e-1", true},
		{"$.amount", "eq", `"1.50"`, false},
		{"$.amount", "lt", "1.5", false},
		{"$.amount", "le", "1.5", true},
		{"$.amount", "gt", "-3", true},
		{"$.id", "eq", "7", false},
		{"$.id", "eq", `"7"`, true},
		{"$.id", "ge", "10", false},
		{"$.note", "contains", "late", true},
		{"$.note", "contains", "early", false},
		{"$.amount", "contains", "1", false},
		{"$.none", "eq", "null", true},
		{"$.none", "exists", "", true},
		{"$.missing", "exists", "", false},
		{"$.missing", "ne", "1", false},
		{"$.id", "ne", "8", true},
		{"$.paid", "eq", "true", true},
		{"$.paid", "ne", "true", false},
		{"$.lines[*].account", "eq", `"6000"`, true},
		{"$.lines.account", "eq", `"6000"`, true},
		{"$.lines[*].account", "ne", `"6000"`, false},
		{"$.lines[*].account", "gt", `"6000"`, false},
		{"$.lines[*].tags", "eq", "b", true},
		{"$.lines[*].tags[*]", "contains", "b", true},
		{"$.empty", "exists", "", true},
		{"$.empty[*]", "exists", "", false},
		{"$.amount.x", "exists", "", false},
	} {
		p, err := event.ParsePredicate(c.path, c.operator, c.value)
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, p.Matches(payload), "%+v", c)
		require.False(t, p.Matches(nil))
		require.False(t, p.Matches([]byte(`{"data`)))
	}
}

func TestParsePredicate_Refusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, operator, value, field string }{
		{"", "eq", "1", "path"},
		{"$", "exists", "", "path"},
		{"$.", "exists", "", "path"},
		{"a", "exists", "", "path"},
		{"$..a", "exists", "", "path"},
		{"$[*]", "exists", "", "path"},
		{"$.a[0]", "exists", "", "path"},
		{"$.a[*]b", "exists", "", "path"},
		{`$.a" ? (@ == 1)`, "exists", "", "path"},
		{"$.$pii", "exists", "", "path"},
		{"$" + strings.Repeat(".a", 33), "exists", "", "path"},
		{"$." + strings.Repeat("a", 1100), "exists", "", "path"},
		{"$.a", "", "1", "operator"},
		{"$.a", "like", "1", "operator"},
		{"$.a", "exists", "1", "value"},
		{"$.a", "eq", "", "value"},
		{"$.a", "eq", strings.Repeat("x", 1025), "value"},
		{"$.a", "eq", strings.Repeat("9", 41), "value"},
		{"$.a", "gt", "true", "value"},
		{"$.a", "le", "null", "value"},
		{"$.a", "contains", `""`, "value"},
		{"$.a", "eq", `"\u0000"`, "value"},
	} {
		_, err := event.ParsePredicate(c.path, c.operator, c.value)
		f, ok := fault.As(err)
		require.True(t, ok, "%+v", c)
		require.Equal(t, "query.predicate_invalid", f.Code)
		require.Equal(t, c.field, f.Field, "%+v", c)
	}
}

func TestPredicate_Within(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"$.contacts[*].email": true, "$.contacts.email": true, "$.contacts[*].email.value": true, "$.contacts[*].email[*]": true,
		"$.contacts": false, "$.contacts[*].emails": false, "$.email": false, "$.contacts[*].phone": false,
	} {
		p, err := event.ParsePredicate(path, "exists", "")
		require.NoError(t, err)
		require.Equal(t, want, p.Within("$.contacts[*].email"), path)
	}
}

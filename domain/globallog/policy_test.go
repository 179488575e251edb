package globallog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
)

// TestPolicy decides by the groups of the example of c2sp.org/tlog-policy.
func TestPolicy(t *testing.T) {
	t.Parallel()
	p, err := globallog.ParsePolicy([]byte(`
# two organizations
log books.example.org/1+aa+L1 https://books.example.org
witness X1 w+1+x1 https://w1.example.org/witness
witness X2 w+2+x2
	witness X3  w+3+x3
group X-witnesses 2 X1 X2 X3
witness Y1 w+4+y1
witness Y2 w+5+y2
group Y-witnesses any Y1 Y2
group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
`))
	require.NoError(t, err)
	require.Equal(t, []globallog.PolicyKey{{Key: "books.example.org/1+aa+L1", URL: "https://books.example.org"}}, p.Logs)
	require.Equal(t, []string{"books.example.org/1+aa+L1", "w+1+x1", "w+2+x2", "w+3+x3", "w+4+y1", "w+5+y2"}, p.Keys())
	for signed, want := range map[string]bool{
		"w+1+x1 w+2+x2 w+4+y1": true, "w+3+x3 w+2+x2 w+5+y2 w+1+x1": true,
		"": false, "w+1+x1 w+4+y1": false, "w+1+x1 w+2+x2 w+3+x3": false, "w+4+y1 w+5+y2": false, "w+1+x1 w+1+x1 w+4+y1": false,
	} {
		require.Equal(t, want, p.IsWitnessed(strings.Fields(signed)), signed)
	}
	none, err := globallog.ParsePolicy([]byte("quorum none"))
	require.NoError(t, err)
	require.True(t, none.IsWitnessed(nil))
	one, err := globallog.ParsePolicy([]byte("witness A a+1+k\nquorum A\n"))
	require.NoError(t, err)
	require.False(t, one.IsWitnessed(nil))
	require.True(t, one.IsWitnessed([]string{"a+1+k"}))
}

// TestParsePolicy_Refuses what the format does not allow, with the line.
func TestParsePolicy_Refuses(t *testing.T) {
	t.Parallel()
	const two = "witness A a+1+ka\nwitness B b+1+kb\n"
	for text, says := range map[string]string{
		"": "no quorum", "# quorum none": "no quorum", "quorum A": "line 1", "quorum none\nquorum none": "line 2", "quorum none none": "line 1", "quorum": "line 1",
		"log\nquorum none": "line 1", "log a+1+k u x\nquorum none": "line 1", "log a+1+k\nlog b+2+k\nquorum none": "line 2", "logs a+1+k\nquorum none": "line 1",
		"witness A\nquorum none": "line 1", "witness none a+1+k\nquorum none": "line 1", two + "witness A c+1+kc\nquorum A": "line 3", two + "witness C c+9+kb\nquorum A": "line 3",
		two + "group G all\nquorum G": "line 3", two + "group G 3 A B\nquorum G": "line 3", two + "group G 0 A B\nquorum G": "line 3", two + "group G some A B\nquorum G": "line 3",
		two + "group G +1 A B\nquorum G": "line 3", two + "group G any A A\nquorum G": "line 3", two + "group G any A C\nquorum G": "line 3", two + "group G any A none\nquorum G": "line 3",
		two + "group A any B\nquorum A": "line 3", two + "group G any A\ngroup H any A B\nquorum H": "line 4", two + "group G any G A\nquorum G": "line 3",
		"quorum\x01none": "line 1", "quorum none\r\n": "line 1", strings.Repeat("\n", 1000) + "quorum none": "line 1001",
	} {
		_, err := globallog.ParsePolicy([]byte(text))
		require.Equal(t, "global_log.policy_malformed", fault.CodeOf(err), text)
		require.ErrorContains(t, err, says, text)
	}
}

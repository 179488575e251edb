package wire

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpclient"
)

func TestAboutLineNamesEachEntityOnceAndNotThousands(t *testing.T) {
	t.Parallel()
	require.Empty(t, aboutLine(nil))
	require.Equal(t, "about vendor V-1, invoice V-1", aboutLine([]httpclient.Entity{
		{Type: "vendor", ID: "V-1", Role: "subject"}, {Type: "invoice", ID: "V-1"}, {Type: "vendor", ID: "V-1", Role: "payee"},
	}))
	var many []httpclient.Entity
	for n := range mostAbout + 2 {
		many = append(many, httpclient.Entity{Type: "machine", ID: fmt.Sprint(n)})
	}
	line := aboutLine(many)
	require.Contains(t, line, "machine 19 and 2 more")
	require.NotContains(t, line, "machine 20")
}

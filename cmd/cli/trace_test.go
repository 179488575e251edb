package cli

import (
	"fmt"
	"testing"
	"time"

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

// A process of a night's run is about hundreds of thousands of entities. The time only says
// that no entity is compared with every other one.
func TestAboutLineOfVeryManyEntitiesIsThereAtOnce(t *testing.T) {
	t.Parallel()
	const many = 300_000
	entities := make([]httpclient.Entity, 0, 2*many)
	for range 2 {
		for n := range many {
			entities = append(entities, httpclient.Entity{Type: "machine", ID: fmt.Sprintf("%09d", n)})
		}
	}
	line := make(chan string, 1)
	go func() { line <- aboutLine(entities) }()
	select {
	case got := <-line:
		require.Contains(t, got, "about machine 000000000, machine 000000001, ")
		require.Contains(t, got, fmt.Sprintf("machine 000000019 and %d more", many-mostAbout))
	case <-time.After(time.Minute):
		require.Fail(t, "it is still comparing")
	}
}

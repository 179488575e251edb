package country_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/country"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"AD", "DE", "GB", "GR", "US", "ZW"} {
		require.True(t, country.Known(code), code)
	}
	for _, code := range []string{"", "D", "DE ", "de", "UK", "EL", "XI", "EU", "XX", "ZZ", "E ", " A", "SU", "DEU"} {
		require.False(t, country.Known(code), code)
	}
	n := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			if country.Known(strings.Join([]string{string(a), string(b)}, "")) {
				n++
			}
		}
	}
	require.Equal(t, 249, n) // as many as ISO 3166-1 assigns
}

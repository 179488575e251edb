package money_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/money"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	for document, pointer := range map[string]string{
		`{"total":1e3}`:                    "/total",
		`{"a":[1,{"b/c":2.50,"d~":-0}]}`:   "/a/1/d~0",
		`{"a/b":[[0],[1.5,1E2]],"c":1e1}`:  "/a~1b/1/1",
		`[1,"1e3",null,true,{}]`:           "",
		`{"a":{"b":12345678901234.56}}`:    "/a/b",
		`{"a":1,"b":[],"c":{"d":[{}]}} `:   "",
		`{"a":[1,2`:                        "",
		``:                                 "",
		`7`:                                "",
		`{"lines":[{"amount":5},{"n":1]}}`: "",
	} {
		require.Equal(t, pointer, money.Locate([]byte(document)), document)
	}
}

package plugin_test

import (
	"os"
	"testing"

	"github.com/erpbackbone/backbone/test/moduletest"
)

func TestMain(m *testing.M) { os.Exit(moduletest.Run(m)) }

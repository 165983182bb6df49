package budgets_test

import (
	"os"
	"testing"

	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

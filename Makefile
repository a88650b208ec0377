# Every target calls tools/house.py, which says what it does; README.md gives the same without make.
PYTHON ?= python3
PORT ?= 8000
PRESET ?= paper
SEEDS ?= 0
DEVICE ?= auto
HOUSE = $(PYTHON) tools/house.py

.PHONY: help book pdf test test-colab test-grading test-long test-deployment assignments grade results bench serve repository clean
help: ## Say what each target does
	@sed -n 's/^\([a-z-]*\):.*## /make \1: /p' Makefile

book: ## Install in .venv, execute the notebooks, build the book, print the path to open
	@$(HOUSE) book

pdf: ## Bind the built book to one PDF, with solutions at each chapter's end
	@$(HOUSE) pdf

test: ## Run every check: style, library, notebooks, a clean build, its pages in a browser
	@$(HOUSE) test

test-colab: ## Run each notebook alone, from the built wheel, as on Colab
	@$(HOUSE) test-colab

test-grading: ## Hand in every typical answer to the assignments and grade them in the sandbox
	@$(HOUSE) test-grading

test-long: ## Run the tests that are too long for every change
	@$(HOUSE) test-long

test-deployment: ## Run the algorithms in Flower's own programs on this machine, and kill some
	@$(HOUSE) test-deployment

assignments: ## Make the assignments' student zip and instructor pack
	@$(HOUSE) assignments

grade: ## Grade submissions in a sandbox: SUBMISSIONS=folder OUT=folder UNSAFE=1
	@$(HOUSE) grade "$(SUBMISSIONS)" $(if $(OUT),--out "$(OUT)") $(if $(UNSAFE),--unsafe)

results: ## Run a long experiment, store what is missing: EXPERIMENT=06_table1 SEEDS="0 1 2"
	@$(HOUSE) results "$(EXPERIMENT)" --seeds $(SEEDS) --preset "$(PRESET)" --device "$(DEVICE)" --set $(SET)

bench: ## Measure the library against plain loops: THREADS=1, default all
	@$(HOUSE) bench $(if $(THREADS),--threads "$(THREADS)")

serve: ## Serve the built book on this machine: PORT=8000
	@$(HOUSE) serve $(PORT)

repository: ## Set the repository's address everywhere: URL=https://github.com/OWNER/NAME
	@$(HOUSE) repository "$(URL)"

clean: ## Remove the built book and the caches, but not .venv
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

"""`python -m swell.pipeline JOB …`; `spark-submit --py-files swell.zip …/pipeline/__main__.py`."""

from swell.pipeline.commands import main

if __name__ == "__main__":
    main()

import click
@click.command()
def env():
    pass
